"""Places of replies whose answers come late, not at all, or together with something else."""

import asyncio
from collections.abc import Callable, Sequence

from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.types import Buffer
from kafscale.server.connection_host import Requester
from kafscale.server.reply_queue import ReplySlot
from kafscale.serving.context import Held
from kafscale.serving.request_throttle import RequestThrottle


class RepliesBehind(Requester):
    """A connection whose next replies pass through `wrap`."""

    def __init__(self, requester: Requester, wrap: Callable[[ReplySlot], ReplySlot]) -> None:
        self._behind = requester
        self._wrap = wrap
        self.peer_host = requester.peer_host
        self.listener, self.protocol = requester.listener, requester.protocol
        self.software, self.access = requester.software, requester.access
        self.mute, self.is_known = requester.mute, requester.is_known

    def open_slot(self, api_key: ApiKey, throttle: RequestThrottle | None = None) -> ReplySlot:
        """See `Requester`."""
        return self._wrap(self._behind.open_slot(api_key, throttle))

    def body_is_read(self) -> None:
        """See `Requester`."""
        self._behind.body_is_read()

    def refuse(self, reason: FrameRefusal, problem: str) -> None:
        """See `Requester`."""
        self._behind.refuse(reason, problem)


class SlotBehind(ReplySlot):
    """A reply's place in front of the connection's own. Subclasses decide about the answer."""

    __slots__ = ("_slot",)

    def __init__(self, slot: ReplySlot) -> None:
        self._slot = slot
        self.times = None

    @property
    def abandoned(self) -> Callable[[], None] | None:
        """See `ReplySlot`."""
        return self._slot.abandoned

    @abandoned.setter
    def abandoned(self, abandoned: Callable[[], None] | None) -> None:
        self._slot.abandoned = abandoned

    @property
    def connected_for_ms(self) -> int:
        """See `ReplySlot`."""
        return self._slot.connected_for_ms

    def drop(self) -> None:
        """See `ReplySlot`."""
        self._slot.drop()

    def end_connection(self) -> None:
        """See `ReplySlot`."""
        self._slot.end_connection()

    def _pass_on(self, buffers: Sequence[Buffer], held: Held | None, error_code: int) -> None:
        self._slot.times = self.times
        self._slot.send(buffers, held, error_code)


class LateSlot(SlotBehind):
    """The answer leaves after so many seconds of the loop's clock."""

    __slots__ = ("_delay_sec",)

    def __init__(self, slot: ReplySlot, delay_sec: float) -> None:
        super().__init__(slot)
        self._delay_sec = delay_sec

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        """See `ReplySlot`."""
        self._slot.abandoned = None  # For the handler it has left.
        asyncio.get_running_loop().call_later(self._delay_sec, self._pass_on, buffers, held, error_code)


class LostSlot(SlotBehind):
    """The connection ends in the place of the answer."""

    __slots__ = ()

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        """See `ReplySlot`."""
        self._slot.abandoned = None
        if held is not None:
            held.release()
        self._slot.end_connection()

    def drop(self) -> None:
        """See `ReplySlot`."""
        self._slot.end_connection()


class ChangedSlot(SlotBehind):
    """`change` makes the answer that is sent, with its error code, of the frame that the handler gave."""

    __slots__ = ("_change",)

    def __init__(self, slot: ReplySlot, change: Callable[[bytes], tuple[bytes, int]]) -> None:
        super().__init__(slot)
        self._change = change

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        """See `ReplySlot`."""
        frame, code = self._change(b"".join(buffers))
        if held is not None:
            held.release()
        self._pass_on((frame,), None, code)
