"""Frames: their length, checked before anything is allocated, and the memory of those that come in pieces."""

import asyncio
from collections.abc import Callable
from struct import Struct

from kafscale.errors import KafscaleError
from kafscale.ops.metrics import FrameRefusal
from kafscale.storage.memory_budget import MemoryBudget
from kafscale.storage.slab import Slab, SlabPool

_LENGTH = Struct(">i")

# API key, API version and correlation id: nothing shorter is a request.
MIN_FRAME_BYTES = 8
# Frames up to this size need not ask the budget: a connection has one at most.
UNCHARGED_FRAME_BYTES = 64 * 1024


class FrameTooLargeError(KafscaleError):
    """A frame's length is not legal."""

    def __init__(self, reason: FrameRefusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def frame_length(data: memoryview, position: int, max_bytes: int) -> int:
    """The length of the frame whose four length bytes are at `position`. Raises `FrameTooLargeError`."""
    (length,) = _LENGTH.unpack_from(data, position)
    if MIN_FRAME_BYTES <= length <= max_bytes:
        return int(length)
    if length > max_bytes:
        raise FrameTooLargeError(
            FrameRefusal.TOO_LARGE,
            f"a frame of {length} bytes is over KAFSCALE_FRAME_MAX_BYTES ({max_bytes})",
        )
    raise FrameTooLargeError(
        FrameRefusal.BAD_LENGTH,
        f"a frame length of {length} bytes is not legal, the least is {MIN_FRAME_BYTES}",
    )


class FrameInProgress:
    """A frame with memory of its own, which may still be coming. `give_back` ends its life."""

    __slots__ = ("_budget", "_charged_bytes", "_deadline", "_filled_bytes", "_length", "_pool", "_slab")

    def __init__(
        self,
        length: int,
        first: memoryview,
        pool: SlabPool,
        budget: MemoryBudget,
        charged_bytes: int,
        deadline: asyncio.TimerHandle,
    ) -> None:
        self._length = length
        self._pool = pool
        self._budget = budget
        self._charged_bytes = charged_bytes
        self._deadline = deadline
        self._slab: Slab | None = pool.acquire(length, is_at_hand=False)
        self._slab.view[: len(first)] = first
        self._filled_bytes = len(first)

    @property
    def is_charged(self) -> bool:
        """Whether the budget was charged for the frame."""
        return self._charged_bytes > 0

    @property
    def is_whole(self) -> bool:
        """Whether all of it has come."""
        return self._filled_bytes == self._length

    def room(self) -> memoryview:
        """Where the rest of the frame, and nothing beyond it, is to be received."""
        assert self._slab is not None
        return self._slab.view[self._filled_bytes : self._length]

    def filled(self, size_bytes: int) -> None:
        """So much more has come."""
        self._filled_bytes += size_bytes
        if self.is_whole:
            self._deadline.cancel()

    def body(self) -> memoryview:
        """The whole frame, without its length."""
        assert self._slab is not None
        return self._slab.view[: self._length]

    def give_back(self) -> None:
        """The frame is not needed any more, and nobody holds a view of it."""
        self._deadline.cancel()
        if self._slab is not None:
            slab, self._slab = self._slab, None
            self._pool.release(slab)
            if self._charged_bytes:
                self._budget.release(self._charged_bytes)


class FrameMemory:
    """Gives frames their memory, within the budget.

    A frame must be whole within `FIRST_SEC` and a second more per `BYTES_PER_SEC`: who reserves memory for a
    frame and does not send it would otherwise keep it from the others.
    """

    FIRST_SEC = 30.0
    BYTES_PER_SEC = 1024 * 1024

    def __init__(self, pool: SlabPool, budget: MemoryBudget) -> None:
        self._pool = pool
        self._budget = budget

    @staticmethod
    def is_charged(length: int) -> bool:
        """Whether a frame of this length needs the budget's consent."""
        return length > UNCHARGED_FRAME_BYTES

    def begin(
        self, length: int, first: memoryview, overdue: Callable[[], None], granted_bytes: int
    ) -> FrameInProgress | None:
        """Memory for a frame of which `first` has come; None when the budget has none now.

        `granted_bytes`: what the budget was charged for the frame already; the frame takes that over.
        """
        charged_bytes = granted_bytes
        if self.is_charged(length) and not granted_bytes:
            if not self._budget.try_charge(length):
                return None
            charged_bytes = length
        deadline = asyncio.get_running_loop().call_later(
            self.FIRST_SEC + length / self.BYTES_PER_SEC, overdue
        )
        return FrameInProgress(length, first, self._pool, self._budget, charged_bytes, deadline)
