"""Reused memory for what is received and what is to be uploaded: fresh pages cost more than copying does."""

import mmap
import sys
from itertools import pairwise

SLAB_CAPACITIES_BYTES = (16 * 1024, 128 * 1024, 1024 * 1024, 4 * 1024 * 1024)
_PAGE_BYTES = 4096


class Slab:
    """A contiguous piece of memory, filled from its start. Page-aligned from the second capacity on."""

    __slots__ = ("capacity_bytes", "used_bytes", "view")

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        small = capacity_bytes <= SLAB_CAPACITIES_BYTES[0]
        self.view = memoryview(bytearray(capacity_bytes) if small else _pages(capacity_bytes))

    @property
    def room_bytes(self) -> int:
        """How much more fits."""
        return self.capacity_bytes - self.used_bytes

    def content(self) -> memoryview:
        """What has been filled so far, without a copy."""
        return self.view[: self.used_bytes]


def _pages(capacity_bytes: int) -> mmap.mmap:
    # Shared pages, the default, belong to a file in memory, and the first touch of one costs half as much again.
    return mmap.mmap(-1, capacity_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class SlabPool:
    """Slabs by capacity, kept for reuse up to a limit. Not thread-safe: the event loop owns it."""

    def __init__(self, spare_limit_bytes: int) -> None:
        self._spare_limit_bytes = spare_limit_bytes
        self._spare: dict[int, list[Slab]] = {capacity: [] for capacity in SLAB_CAPACITIES_BYTES}
        self.spare_bytes = 0

    def acquire(self, size_bytes: int, wanted_bytes: int = 0) -> Slab:
        """An empty slab of at least `size_bytes`, and of the largest capacity not above `wanted_bytes`.

        Its old content is still there beyond `used_bytes`.
        """
        for capacity, larger in pairwise((*SLAB_CAPACITIES_BYTES, sys.maxsize)):
            if size_bytes <= capacity and wanted_bytes < larger:
                spare = self._spare[capacity]
                if spare:
                    self.spare_bytes -= capacity
                    return spare.pop()
                return Slab(capacity)
        return Slab(-(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES)

    def release(self, slab: Slab) -> None:
        """Give a slab back. Nobody may hold a view of it any more."""
        spare = self._spare.get(slab.capacity_bytes)
        if spare is None or self.spare_bytes + slab.capacity_bytes > self._spare_limit_bytes:
            return
        slab.used_bytes = 0
        spare.append(slab)
        self.spare_bytes += slab.capacity_bytes
