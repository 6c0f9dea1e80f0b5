"""The broker's listening sockets, and the services that their connections share."""

import asyncio
import logging
import math
import time
from collections.abc import Coroutine
from typing import Any

from kafscale.errors import cannot_listen
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.metadata.model import ListenerName
from kafscale.ops.line_limit import RepeatedLines
from kafscale.ops.metrics import Metrics
from kafscale.server.connection import Connection
from kafscale.server.connection_host import HostedConnection
from kafscale.server.dispatcher import Dispatcher
from kafscale.server.frames import FrameMemory
from kafscale.settings.kinds import Address
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# Large enough that a busy producer's frames arrive with few system calls, and used by all connections in turn.
RECEIVE_BUFFER_BYTES = 256 * 1024
SMALL_RECEIVE_BUFFER_BYTES = 4 * 1024
BACKLOG = 1024

_SET_BY = {
    ListenerName.PLAINTEXT: "KAFSCALE_BROKER_ADDR",
    ListenerName.EXTERNAL: "KAFSCALE_EXTERNAL_ADDR",
}
_IDLE_CHECKS_PER_TIMEOUT = 10


class Listener:
    """Accepts clients up to a limit, closes idle ones, and closes all in an orderly stop."""

    def __init__(
        self,
        pool: SlabPool,
        budget: MemoryBudget,
        metrics: Metrics,
        *,
        frame_max_bytes: int,
        max_connections: int,
        max_idle_ms: int,
        slow_request_ms: int = 0,
    ) -> None:
        """`slow_request_ms`: a request that takes longer is logged; 0 for none."""
        self.dispatcher: Dispatcher
        self.budget = budget
        self.metrics = metrics
        self.frame_max_bytes = frame_max_bytes
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        # For clients whose next request has to wait anyway: the bytes that they send now must be kept.
        self.small_receive_buffer = self.receive_buffer[:SMALL_RECEIVE_BUFFER_BYTES]
        self.frame_memory = FrameMemory(pool, budget)
        self.slow_request_sec = slow_request_ms / 1000 or math.inf
        self._max_connections = max_connections
        self._max_idle_sec = max_idle_ms / 1000
        self._connections: set[HostedConnection] = set()
        self._requests = TaskOwner()
        self._servers: list[asyncio.Server] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._no_connections = asyncio.Event()
        self._no_connections.set()
        self._repeated_lines = RepeatedLines(time.monotonic)

    async def bind(
        self, host: str, port: int, name: ListenerName = ListenerName.PLAINTEXT
    ) -> tuple[str, int]:
        """Bind an address without accepting clients yet; returns the one in use (for port 0 the system's choice).

        Raises `StartupError` if that is not possible.
        """
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: Connection(self, name), host, port, backlog=BACKLOG, start_serving=False
            )
        except OSError as problem:
            for taken in self._servers:
                taken.close()
            raise cannot_listen(Address(host, port), "Kafka clients", problem, _SET_BY[name]) from problem
        self._servers.append(server)
        bound = server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def start(self, dispatcher: Dispatcher) -> None:
        """Accept clients at the bound addresses."""
        self.dispatcher = dispatcher
        for server in self._servers:
            await server.start_serving()
        self._check_idle()

    # --- services for connections

    def admit(self, connection: HostedConnection) -> bool:
        """True if there is a place for one more client."""
        self._connections.add(connection)
        self._no_connections.clear()
        counters = self.metrics.connections
        counters.accepted += 1
        counters.current += 1
        if len(self._connections) > self._max_connections:
            counters.rejected += 1
            self.log_refusal(
                "connections",
                connection.peer_host,
                f"there are KAFSCALE_MAX_CONNECTIONS ({self._max_connections}) already",
            )
            return False
        return True

    def remove(self, connection: HostedConnection) -> None:
        """The connection is gone."""
        if connection in self._connections:
            self._connections.remove(connection)
            self.metrics.connections.current -= 1
            if not self._connections:
                self._no_connections.set()

    def run_request(self, request: Coroutine[Any, Any, None]) -> None:
        """Run the rest of a request that could not be answered at once."""
        self._requests.spawn(request, "request")

    def log_refusal(self, kind: str, client: str, problem: str) -> None:
        """Log why a client was refused: one line a minute for each client and kind of problem at most."""
        left_out = self._repeated_lines.admit((kind, client))
        if left_out is not None:
            extra = {"client": client, "problem": problem, **_count(left_out)}
            logger.warning("closed a connection", extra=extra)

    def log_failure(self, client: str, problem: Exception) -> None:
        """Log a defect that ended a request: one traceback a minute for each place in the code at most."""
        left_out = self._repeated_lines.admit(("failure", _place(problem)))
        if left_out is not None:
            extra = {"client": client, **_count(left_out)}
            logger.error("a request failed", exc_info=problem, extra=extra)

    def log_slow(self, client: str, fields: dict[str, object]) -> None:
        """Log where the time of a slow request went: one line a minute for each client and API at most."""
        left_out = self._repeated_lines.admit((f"slow {fields['api']}", client))
        if left_out is not None:
            logger.warning("a request was slow", extra={"client": client, **fields, **_count(left_out)})

    # --- idle clients

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        before_sec = loop.time() - self._max_idle_sec
        for connection in list(self._connections):
            if connection.is_idle_since(before_sec):
                # Not `close`, which waits until the client has taken its replies.
                connection.abort()
        self._idle_timer = loop.call_later(self._max_idle_sec / _IDLE_CHECKS_PER_TIMEOUT, self._check_idle)

    # --- the end

    def stop_accepting(self) -> None:
        """Stop listening and reading; requests in flight still get their replies."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.stop_reading()

    async def finish_requests(self, timeout_sec: float) -> None:
        """Wait for the requests in flight, except those that only wait for records to be published."""
        await self._requests.wait(timeout_sec)

    async def no_connections(self) -> None:
        """Wait until the last client has gone."""
        await self._no_connections.wait()

    async def close(self) -> None:
        """Close every connection when its written replies have left, and cancel the requests in flight."""
        for connection in list(self._connections):
            connection.close()
        try:
            async with asyncio.timeout(1.0):
                await self._no_connections.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._no_connections.wait()
        await self._requests.close()


def _count(left_out: int) -> dict[str, int]:
    return {"left_out": left_out} if left_out else {}


def _place(problem: Exception) -> str:
    """The place where an exception was raised."""
    place = problem.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
    return f"{type(problem).__name__} {where}"
