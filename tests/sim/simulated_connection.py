"""Connections between simulated clients and brokers, and the listener that brokers have in place of a socket."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol

from kafscale.ops.metrics import ConnectionMetrics, FrameRefusal, Metrics
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.security.access import UNRESTRICTED, Access
from kafscale.server.connection_host import RequestDispatcher
from kafscale.server.mute import Mute
from kafscale.server.reply_queue import ReplyQueue, ReplySlot
from kafscale.serving.context import ClientSoftware
from kafscale.serving.request_throttle import RequestThrottle
from tests.sim.links import Link
from tests.sim.process_loop import Process


class DisconnectedError(Exception):
    """The connection ended before the reply came: nobody knows the outcome of the request."""


class SimulatedListener:
    """The part of `Listener` that `BrokerProcess` calls."""

    def __init__(self, pool: object, budget: object, metrics: Metrics, **limits: object) -> None:
        self.metrics = metrics
        self.dispatcher: RequestDispatcher | None = None
        self._requests: dict[asyncio.Task[None], None] = {}
        self._ends: list[BrokerEnd] = []

    async def bind(self, spec: object) -> tuple[str, int]:
        """See `Listener`."""
        return "broker", 9092

    async def start(self, dispatcher: RequestDispatcher, sasl: object) -> None:
        """See `Listener`."""
        self.dispatcher = dispatcher

    def accept(self, end: "BrokerEnd") -> bool:
        """Take in a client, if anybody listens."""
        if self.dispatcher is None:
            return False
        self._ends.append(end)
        return True

    def die(self) -> None:
        """The process is killed: its clients find out, mostly."""
        for end in self._ends:
            end.vanish()

    def run_request(self, request: Coroutine[Any, Any, None]) -> None:
        """See `Listener`."""
        task = asyncio.create_task(request, name="request")
        self._requests[task] = None
        task.add_done_callback(self._requests.pop)

    def stop_accepting(self) -> None:
        """See `Listener`."""
        self.dispatcher = None
        for end in self._ends:
            end.stop_reading()

    async def finish_requests(self, timeout_sec: float) -> None:
        """See `Listener`."""
        if self._requests:
            await asyncio.wait(list(self._requests), timeout=timeout_sec)

    async def no_connections(self) -> None:
        """See `Listener`. The simulated clients keep theirs."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """See `Listener`."""
        for end in self._ends:
            end.abort()
        tasks = list(self._requests)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Server(Protocol):
    """A broker that clients connect to."""

    @property
    def process(self) -> Process:
        """The principal that it runs as."""

    listener: SimulatedListener | None


class BrokerEnd:
    """The broker's side of a connection: a `Requester` and a `ReplySink`. Runs as part of the broker."""

    def __init__(self, client: "ClientConnection") -> None:
        self.peer_host = client.name
        self.listener, self.protocol = ListenerName.PLAINTEXT, SecurityProtocol.PLAINTEXT
        # They compare stored bytes; and a simulation runs no threads.
        self.software = ClientSoftware(has_codecs=True)
        self.access: Access = UNRESTRICTED
        self.is_known = True
        self.mute = Mute(ConnectionMetrics(), lambda: None)
        self._client = client
        self._listener: SimulatedListener | None = None
        self._dispatcher: RequestDispatcher | None = None
        self._replies = ReplyQueue()
        self._kept: deque[bytes] = deque()
        self._busy = False
        self._ended = False
        self.connected_at_sec = 0.0

    def connect(self, server: Server) -> None:
        """The client's first packet has come."""
        self.connected_at_sec = self.now_sec()
        listener = server.listener
        if listener is None or not listener.accept(self):
            self.abort()
            return
        self._listener, self._dispatcher = listener, listener.dispatcher

    def receive(self, frame: bytes) -> None:
        """A request has come."""
        if self._ended or self._dispatcher is None:
            return
        self._kept.append(frame)
        self._go_on()

    def _go_on(self) -> None:
        while self._kept and not self._busy and not self._ended and self._dispatcher is not None:
            assert self._listener is not None
            appending = self._dispatcher.dispatch(self, memoryview(bytearray(self._kept.popleft())))
            if appending is not None:
                self._busy = True
                self._listener.run_request(self._finish(appending))

    async def _finish(self, appending: Awaitable[None]) -> None:
        try:
            await appending
        finally:
            self._busy = False
        self._go_on()

    def stop_reading(self) -> None:
        """Answer what waits, look at nothing more."""
        self._kept.clear()
        self._dispatcher = None

    def lose(self) -> None:
        """The client is gone."""
        self._ended = True
        self._replies.abandon()

    def vanish(self) -> None:
        """The broker is gone; its machine says so, unless it is gone as well."""
        if not self._ended and self._client.hears_of_deaths():
            self._client.end_leaves()

    # --- what dispatcher and replies call

    def open_slot(self, api_key: ApiKey, throttle: RequestThrottle | None = None) -> ReplySlot:
        """See `Requester`."""
        assert self._listener is not None
        slot = ReplySlot(self, self._listener.metrics.api(api_key), api_key is ApiKey.PRODUCE)
        self._replies.add(slot)
        return slot

    def body_is_read(self) -> None:
        """See `Requester`."""

    def refuse(self, reason: FrameRefusal, problem: str) -> None:
        """See `Requester`."""
        raise AssertionError(f"{self.peer_host}: {problem}")

    def reply_ready(self, slot: ReplySlot) -> None:
        """See `ReplySink`."""
        if self._ended:
            return
        self._replies.ready(slot)
        for ready in self._replies.take_ready():
            frame = b"".join(ready.buffers or ())
            if ready.held is not None:
                ready.held.release()
            self._client.reply_leaves(frame)

    def now_sec(self) -> float:
        """See `ReplySink`."""
        return asyncio.get_running_loop().time()

    def abort(self) -> None:
        """See `ReplySink`."""
        if not self._ended:
            self.lose()
            self._client.end_leaves()


class ClientConnection:
    """The client's side. Requests arrive in order, and replies come in that order."""

    def __init__(self, name: str, server: Server, link: Link) -> None:
        self.name = name
        self.is_open = True
        self._is_broken = False
        self._server = server
        self._link = link
        self._end = BrokerEnd(self)
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._last_there_sec = self._last_back_sec = 0.0
        self._send(self._end.connect, server)

    def request(self, frame: bytes) -> "asyncio.Future[bytes]":
        """Send a request; the future raises `DisconnectedError` if the connection ends first."""
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            _fail(reply, DisconnectedError())
            return reply
        self._waiting.append(reply)
        breaks = not self._is_broken and self._link.rng.random() < self._link.conditions.fault_rate
        if not self._is_broken and (not breaks or self._link.rng.random() < 0.5):
            self._send(self._end.receive, frame)
        if breaks:
            # The request may have arrived; nothing that follows it does.
            self._is_broken = True
            self._link.later(self._link.delay(), self.close)
        return reply

    def _send(self, callback: Any, *args: Any) -> None:
        now_sec = asyncio.get_running_loop().time()
        self._last_there_sec = max(self._last_there_sec + 1e-6, now_sec + self._link.delay())
        self._server.process.call_at(self._last_there_sec, callback, *args)

    def hears_of_deaths(self) -> bool:
        """True if the network shows that the broker is gone."""
        return self._link.rng.random() < 0.7

    def reply_leaves(self, frame: bytes) -> None:
        """The broker has answered."""
        self._back(self._take_reply, frame)

    def end_leaves(self) -> None:
        """The broker has ended the connection."""
        self._back(self.close)

    def _back(self, callback: Any, *args: Any) -> None:
        now_sec = asyncio.get_running_loop().time()
        self._last_back_sec = max(self._last_back_sec + 1e-6, now_sec + self._link.delay())
        self._link.later(self._last_back_sec - now_sec, callback, *args)

    def _take_reply(self, frame: bytes) -> None:
        if self.is_open:
            reply = self._waiting.popleft()
            if not reply.done():
                reply.set_result(frame)

    def close(self) -> None:
        """End it; whoever waits for a reply is told."""
        if not self.is_open:
            return
        self.is_open = False
        self._send(self._end.lose)
        for reply in self._waiting:
            _fail(reply, DisconnectedError())
        self._waiting.clear()


def _fail(reply: "asyncio.Future[bytes]", problem: Exception) -> None:
    if not reply.done():
        reply.set_exception(problem)
        reply.exception()
