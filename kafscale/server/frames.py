"""Frames: their length, checked before memory is allocated, and the memory of those that arrive in pieces."""

import asyncio
from struct import Struct
from typing import Final, NamedTuple, Protocol

from kafscale.errors import KafscaleError
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import Slab, SlabPool
from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.api_keys import ApiKey
from kafscale.server.frame_lanes import FrameLane, Passage

_LENGTH = Struct(">i")

# A TLS handshake record, read as a length: type 22, version 3.0 to 3.4.
_TLS_STARTS = frozenset(0x160300 + minor for minor in range(5))

# API key, API version and correlation id: nothing shorter is a request.
MIN_FRAME_BYTES = 8
# Frames up to this size have a lane of their own, which large ones cannot fill.
SMALL_FRAME_BYTES = 64 * 1024
# Received whatever the lane says: a connection learns only by receiving that its client has sent more.
MIN_ROOM_BYTES = 4 * 1024


class FrameLimits(NamedTuple):
    """The sizes that a frame may have, and the setting that the larger one comes from."""

    least_bytes: int
    most_bytes: int
    setting: str = "KAFSCALE_FRAME_MAX_BYTES"


class FrameTooLargeError(KafscaleError):
    """A frame's length is not legal."""

    def __init__(self, reason: FrameRefusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def frame_length(data: memoryview, position: int, limits: FrameLimits) -> int:
    """The length of the frame whose four length bytes are at `position`. Raises `FrameTooLargeError`."""
    (length,) = _LENGTH.unpack_from(data, position)
    least_bytes, most_bytes, setting = limits
    if least_bytes <= length <= most_bytes:
        return int(length)
    if length > most_bytes and length >> 8 in _TLS_STARTS:
        raise FrameTooLargeError(FrameRefusal.TLS, "the client speaks TLS, which this listener does not")
    if length > most_bytes:
        raise FrameTooLargeError(
            FrameRefusal.TOO_LARGE,
            f"a frame of {length} bytes is over {setting} ({most_bytes})",
        )
    raise FrameTooLargeError(
        FrameRefusal.BAD_LENGTH,
        f"a frame length of {length} bytes is not legal, the least is {least_bytes}",
    )


def is_large(length: int) -> bool:
    """True if a frame of this length goes in the lane of large ones."""
    return length > SMALL_FRAME_BYTES


def is_produce(request: memoryview) -> bool:
    """True if a frame, of which there are at least two bytes, is a Produce request."""
    return request[0] == 0 and request[1] == ApiKey.PRODUCE


class FrameOwner(Protocol):
    """The connection that a frame arrives on."""

    @property
    def takes_replies(self) -> bool:
        """True if the client reads its replies."""

    def frame_may_go_on(self) -> None:
        """The frame has waited for memory, and the rest may be received."""

    def frame_overdue(self) -> None:
        """The client does not send the rest in time, or does not take replies, so that the frame has to wait."""


class FrameInProgress:
    """A frame with memory of its own, which may still be arriving. `give_back` ends its life.

    Deadline on progress: in every `PROGRESS_SEC` its client sends `PROGRESS_BYTES` or the rest, and it sends the
    whole within `FIRST_SEC` and a second more per `BYTES_PER_SEC`. Time in which the broker makes the frame wait
    for memory does not count. Time in which a whole frame waits counts if its client takes no replies, or if other
    frames wait for memory meanwhile: it waits for a request of its own client, which may take days.
    """

    PROGRESS_SEC = 10.0
    PROGRESS_BYTES = 32 * 1024
    FIRST_SEC = 30.0
    BYTES_PER_SEC = 1024 * 1024

    __slots__ = (
        "_bytes_at_check",
        "_has_waited",
        "_lane",
        "_left_sec",
        "_memory",
        "_owner",
        "_passage",
        "_reused_bytes",
        "_slab",
        "_timer",
        "is_large",
    )

    def __init__(
        self, passage: Passage, lane: FrameLane, memory: "FrameMemory", first: memoryview, owner: FrameOwner
    ) -> None:
        self._passage = passage
        self._lane = lane
        self._memory = memory
        self._owner = owner
        self._slab: Slab | None
        self._slab, self._reused_bytes = memory.acquire(passage.length)
        self._slab.view[: len(first)] = first
        self._left_sec = self.FIRST_SEC + passage.length / self.BYTES_PER_SEC
        self._bytes_at_check = 0
        # Since the last check: then the client had less time than a check is for.
        self._has_waited = False
        self.is_large = is_large(passage.length)
        self._timer = self._check_later()
        self.filled(len(first))

    @property
    def is_whole(self) -> bool:
        """True if all of it has arrived."""
        return self._passage.filled_bytes == self._passage.length

    @property
    def waits(self) -> bool:
        """True if nothing more may be received until `FrameOwner.frame_may_go_on`."""
        return self._passage.waits

    def room(self) -> memoryview:
        """The memory for more of this frame and nothing beyond it; not empty until it is whole."""
        assert self._slab is not None
        filled = self._passage.filled_bytes
        room_bytes = max(MIN_ROOM_BYTES, self._lane.room_bytes(self._passage))
        return self._slab.view[filled : min(filled + room_bytes, self._passage.length)]

    def filled(self, size_bytes: int) -> None:
        """So many more bytes have arrived."""
        self._lane.received(self._passage, size_bytes)
        self._has_waited = self._has_waited or self.waits
        if self._reused_bytes and self.is_whole:
            self._memory.reused_bytes -= self._reused_bytes
            self._reused_bytes = 0

    def body(self) -> memoryview:
        """The whole frame, without its length."""
        assert self._slab is not None
        return self._slab.view[: self._passage.length]

    def taken(self) -> None:
        """The whole frame is being handled: its deadline ends."""
        self._timer.cancel()

    def give_back(self) -> None:
        """Release the frame's memory, of which no view exists any more."""
        self._timer.cancel()
        if self._slab is not None:
            slab, self._slab = self._slab, None
            self._memory.release(slab, self._reused_bytes)
            self._reused_bytes = 0
            self._lane.end(self._passage)

    def _check_later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self.PROGRESS_SEC, self._check)

    def _check(self) -> None:
        has_come = self._passage.filled_bytes - self._bytes_at_check
        self._bytes_at_check = self._passage.filled_bytes
        has_waited, self._has_waited = self._has_waited, self.waits
        may_wait = self.is_whole and self._owner.takes_replies and not self._lane.is_short
        if not has_waited and not may_wait:
            self._left_sec -= self.PROGRESS_SEC
            if has_come < self.PROGRESS_BYTES or self._left_sec <= 0:
                self._owner.frame_overdue()
                return
        self._timer = self._check_later()


class FrameMemory:
    """Gives frames their memory, and assigns them to lanes.

    A frame is charged for the bytes that have arrived, and fresh memory becomes resident no sooner. Memory that was
    used before is resident from the start: frames in progress get such memory up to a limit (`reused_bytes`) and
    fresh memory beyond, so that announcing a length alone takes little.
    """

    # Shares of the budget: of large frames together, and of those of one address. They leave the reserve free.
    _LARGE_SHARE: Final = 3 / 8
    _LARGE_SHARE_OF_PEER: Final = 3 / 16
    # The same for small frames, and for whole requests that connections keep until their turn.
    _SMALL_SHARE: Final = 1 / 4
    _SMALL_SHARE_OF_PEER: Final = 1 / 16
    _REUSED_SHARE: Final = 1 / 4

    def __init__(self, pool: SlabPool, budget: MemoryBudget) -> None:
        self._pool = pool
        limit = budget.limit_bytes
        self._large = FrameLane(
            budget,
            limit_bytes=int(limit * self._LARGE_SHARE),
            share_bytes=int(limit * self._LARGE_SHARE_OF_PEER),
            left_free_bytes=budget.reserve_bytes,
        )
        self._small = FrameLane(
            budget,
            limit_bytes=int(limit * self._SMALL_SHARE),
            share_bytes=int(limit * self._SMALL_SHARE_OF_PEER),
        )
        self._reused_limit_bytes = int(limit * self._REUSED_SHARE)
        self.reused_bytes = 0

    def has_room(self, peer: str) -> bool:
        """True if a connection of this peer may receive much at once, in the buffer that all share."""
        return self._large.has_room(peer) and self._small.has_room(peer)

    def keep(self, peer: str, size_bytes: int) -> None:
        """Count bytes that a connection keeps until it may handle them; less, if negative."""
        self._small.keep(peer, size_bytes)

    def begin(self, length: int, first: memoryview, peer: str, owner: FrameOwner) -> FrameInProgress:
        """Memory for a frame of which `first` has arrived. Raises `OSError` if the system gives none."""
        lane = self._large if is_large(length) else self._small
        return FrameInProgress(Passage(peer, length, owner.frame_may_go_on), lane, self, first, owner)

    def acquire(self, length: int) -> tuple[Slab, int]:
        """Memory for `length` bytes, and how much of it counts in `reused_bytes`."""
        may_reuse = self.reused_bytes + length <= self._reused_limit_bytes
        slab = self._pool.acquire(length, is_at_hand=False, may_reuse=may_reuse)
        reused_bytes = length if may_reuse else 0
        self.reused_bytes += reused_bytes
        return slab, reused_bytes

    def release(self, slab: Slab, reused_bytes: int) -> None:
        """Give memory of `acquire` back; `reused_bytes`: those that are still counted."""
        self.reused_bytes -= reused_bytes
        # No frame takes such a large slab from the spares: it would only stay there.
        if slab.capacity_bytes <= self._reused_limit_bytes:
            self._pool.release(slab)
