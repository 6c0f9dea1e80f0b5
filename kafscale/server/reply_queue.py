"""The replies of one connection, which leave in the order of its requests."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from kafscale.ops.metrics import ApiMetrics
from kafscale.protocol.types import Buffer
from kafscale.serving.context import Held
from kafscale.serving.request_throttle import RequestThrottle
from kafscale.serving.request_times import RequestTimes


class ReplySink(Protocol):
    """The connection, as its replies see it."""

    def reply_ready(self, slot: "ReplySlot") -> None:
        """The reply can leave when those before it have."""

    def now_sec(self) -> float:
        """A monotonic clock."""

    @property
    def connected_at_sec(self) -> float:
        """When the connection was opened, by that clock."""

    def abort(self) -> None:
        """End the connection."""


class ReplySlot:
    """The place of one reply; a `Reply` for the handlers."""

    __slots__ = (
        "_abandoned",
        "_is_gone",
        "_metrics",
        "_sink",
        "buffers",
        "held",
        "is_produce",
        "ready_sec",
        "received_sec",
        "size_bytes",
        "started_sec",
        "times",
    )

    def __init__(
        self, sink: ReplySink, metrics: ApiMetrics, is_produce: bool, received_sec: float | None = None
    ) -> None:
        """`received_sec`: when the request's last byte arrived, by the sink's clock; None: now."""
        self._sink = sink
        self._metrics = metrics
        self.started_sec = sink.now_sec()
        self.received_sec = self.started_sec if received_sec is None else received_sec
        self.ready_sec = 0.0
        self.times: RequestTimes | None = None
        self.is_produce = is_produce
        self._abandoned: Callable[[], None] | None = None
        self._is_gone = False
        self.buffers: Sequence[Buffer] | None = None
        self.held: Held | None = None
        self.size_bytes = 0

    @property
    def abandoned(self) -> Callable[[], None] | None:
        """Called when the connection ends before the reply was sent; at once if it has ended."""
        return self._abandoned

    @abandoned.setter
    def abandoned(self, abandoned: Callable[[], None] | None) -> None:
        self._abandoned = abandoned
        if self._is_gone and abandoned is not None:
            abandoned()

    def abandon(self) -> None:
        """The connection has ended: the reply cannot be sent any more."""
        self._is_gone = True
        if self._abandoned is not None:
            self._abandoned()
        elif self.held is not None:
            self.held.release()

    @property
    def connected_for_ms(self) -> int:
        """The age of the connection."""
        return int((self._sink.now_sec() - self._sink.connected_at_sec) * 1000)

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        """Send a whole frame, once. `held` is released when the last byte has left; `error_code` is counted."""
        self.ready_sec = self._sink.now_sec()
        self._metrics.observe(self.ready_sec - self.received_sec, error_code)
        self._abandoned = None
        if self._is_gone:
            if held is not None:
                held.release()
            return
        self.buffers = buffers
        self.size_bytes = sum(map(len, buffers))
        self.held = held
        self._sink.reply_ready(self)

    def drop(self) -> None:
        """There is no reply to this request (acks=0)."""
        self.send(())

    def end_connection(self) -> None:
        """There is no reply, and the client must not go on as if there had been one."""
        self._sink.abort()


class ThrottledSlot(ReplySlot):
    """The place of a reply to a client with quotas: it leaves with the throttle time."""

    __slots__ = ("_throttle",)

    def __init__(
        self,
        sink: ReplySink,
        metrics: ApiMetrics,
        is_produce: bool,
        received_sec: float | None,
        throttle: RequestThrottle,
    ) -> None:
        super().__init__(sink, metrics, is_produce, received_sec)
        self._throttle = throttle

    def send(self, buffers: Sequence[Buffer], held: Held | None = None, error_code: int = 0) -> None:
        """See `ReplySlot.send`."""
        super().send(self._throttle.marked(buffers), held, error_code)


def new_slot(
    sink: ReplySink,
    metrics: ApiMetrics,
    is_produce: bool,
    received_sec: float,
    throttle: RequestThrottle | None,
) -> ReplySlot:
    """The place of a reply, of a client with quotas (`throttle`) or without."""
    if throttle is None:
        return ReplySlot(sink, metrics, is_produce, received_sec)
    return ThrottledSlot(sink, metrics, is_produce, received_sec, throttle)


class ReplyQueue:
    """Slots in the order of the requests. Pure: the connection does the writing.

    `ready_bytes`: of replies that are ready and wait for an earlier one.
    """

    __slots__ = ("_others", "_slots", "ready_bytes")

    def __init__(self) -> None:
        self._slots: deque[ReplySlot] = deque()
        self._others = 0
        self.ready_bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def only_produce(self) -> bool:
        """True if all requests without a reply so far are Produce requests."""
        return self._others == 0

    def add(self, slot: ReplySlot) -> None:
        """Take the next place."""
        self._slots.append(slot)
        if not slot.is_produce:
            self._others += 1

    def ready(self, slot: ReplySlot) -> None:
        """A slot of this queue has its reply."""
        self.ready_bytes += slot.size_bytes

    def take_ready(self) -> list[ReplySlot]:
        """The replies that may leave now, oldest first."""
        ready = []
        while self._slots and self._slots[0].buffers is not None:
            slot = self._slots.popleft()
            if not slot.is_produce:
                self._others -= 1
            self.ready_bytes -= slot.size_bytes
            ready.append(slot)
        return ready

    def abandon(self) -> None:
        """The connection is gone: replies are not read any more."""
        for slot in self._slots:
            slot.abandon()
        self._slots.clear()
        self._others = self.ready_bytes = 0
