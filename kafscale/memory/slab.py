"""Reused memory for what is received, uploaded and read back: fresh pages cost more than copying does."""

import itertools
import mmap
import sys
from collections import deque
from contextlib import suppress
from itertools import pairwise

SLAB_CAPACITIES_BYTES = (16 * 1024, 128 * 1024, 1024 * 1024, 4 * 1024 * 1024)
# What a segment may be read into, largest first; all page-aligned.
_SHARED_CAPACITIES_BYTES = SLAB_CAPACITIES_BYTES[:1:-1]
# Larger slabs are made to measure in these steps, and reused for what needs at least `_LARGE_FILL` of them.
LARGE_STEP_BYTES = 1024 * 1024
_LARGE_FILL = 0.75
_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)


class Slab:
    """A contiguous piece of memory, filled from its start. Page-aligned from the second capacity on.

    `filled_soon`: most of it is about to be, so that it may become resident at the first byte.
    """

    __slots__ = ("capacity_bytes", "released", "used_bytes", "view")

    def __init__(self, capacity_bytes: int, *, filled_soon: bool = False) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.released = 0
        small = capacity_bytes <= SLAB_CAPACITIES_BYTES[0]
        self.view = memoryview(bytearray(capacity_bytes) if small else _pages(capacity_bytes, filled_soon))

    @property
    def room_bytes(self) -> int:
        """The bytes that still fit."""
        return self.capacity_bytes - self.used_bytes

    def content(self) -> memoryview:
        """The bytes filled so far, without a copy."""
        return self.view[: self.used_bytes]


def _pages(capacity_bytes: int, filled_soon: bool) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, capacity_bytes)
    # Shared pages, the default, belong to a file in memory, and the first touch of one costs half as much again.
    pages = mmap.mmap(-1, capacity_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if filled_soon and capacity_bytes >= SLAB_CAPACITIES_BYTES[-1] and _HUGE_PAGES is not None:
        # One fault for 2 MiB instead of 512: the first filling costs a fourth (docs/profile.md).
        with suppress(OSError):  # The kernel has none.
            pages.madvise(_HUGE_PAGES)
    return pages


class SlabPool:
    """Slabs by capacity, kept for reuse up to a limit. Not thread-safe: the event loop owns it."""

    def __init__(self, spare_limit_bytes: int) -> None:
        self._spare_limit_bytes = spare_limit_bytes
        self._spare: dict[int, deque[Slab]] = {}
        self._releases = itertools.count()
        self.spare_bytes = 0

    def acquire(
        self, size_bytes: int, wanted_bytes: int = 0, *, is_at_hand: bool = True, may_reuse: bool = True
    ) -> Slab:
        """An empty slab of at least `size_bytes`, and of the largest usual capacity not above `wanted_bytes`.

        Its old content is still there beyond `used_bytes`. `is_at_hand`: what fills it is here already. What a
        client only announces may never come, and is to make nothing resident; without `may_reuse` no spare slab
        is taken, which is resident already.
        """
        for capacity, larger in pairwise((*SLAB_CAPACITIES_BYTES, sys.maxsize)):
            if size_bytes <= capacity and wanted_bytes < larger:
                if may_reuse and capacity in self._spare:
                    return self._take(capacity)
                fills = max(size_bytes, wanted_bytes) >= capacity * _LARGE_FILL
                return Slab(capacity, filled_soon=is_at_hand and fills)
        fitting = (
            spare for spare in self._spare if size_bytes <= spare and size_bytes >= spare * _LARGE_FILL
        )
        capacity = min(fitting, default=0) if may_reuse else 0
        if capacity:
            return self._take(capacity)
        return Slab(-(-size_bytes // LARGE_STEP_BYTES) * LARGE_STEP_BYTES, filled_soon=is_at_hand)

    def acquire_together(self, size_bytes: int) -> list[Slab]:
        """Slabs that hold `size_bytes` together, filled so far: spare ones of any larger capacity first."""
        slabs = []
        while size_bytes > 0:
            spare = [capacity for capacity in _SHARED_CAPACITIES_BYTES if capacity in self._spare]
            fitting = [capacity for capacity in spare if capacity <= size_bytes] or spare
            slab = (
                self._take(fitting[0])
                if fitting
                else self.acquire(min(size_bytes, _SHARED_CAPACITIES_BYTES[0]))
            )
            slab.used_bytes = min(size_bytes, slab.capacity_bytes)
            size_bytes -= slab.used_bytes
            slabs.append(slab)
        return slabs

    def release(self, slab: Slab) -> None:
        """Give a slab back. No view of it may be left."""
        if slab.capacity_bytes > self._spare_limit_bytes:
            return
        slab.used_bytes = 0
        slab.released = next(self._releases)
        spare = self._spare.get(slab.capacity_bytes)
        if spare is None:
            self._spare[slab.capacity_bytes] = spare = deque()
        spare.append(slab)
        self.spare_bytes += slab.capacity_bytes
        while self.spare_bytes > self._spare_limit_bytes:
            # The one unused for longest goes, so that the kept ones are of the capacities in use.
            self._take(min(self._spare, key=lambda capacity: self._spare[capacity][0].released), oldest=True)

    def _take(self, capacity: int, *, oldest: bool = False) -> Slab:
        spare = self._spare[capacity]
        slab = spare.popleft() if oldest else spare.pop()
        if not spare:
            del self._spare[capacity]
        self.spare_bytes -= capacity
        return slab
