"""The broker's listening sockets, and the services that their connections share."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from kafscale.clocks import SYSTEM, Clocks
from kafscale.errors import cannot_listen
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.memory.slab import SlabPool
from kafscale.ops.line_limit import RepeatedLines
from kafscale.ops.metrics import Metrics
from kafscale.protocol.listeners import SecurityProtocol
from kafscale.protocol.quota_kinds import QuotaKind
from kafscale.security.access import AccessFactory, unrestricted
from kafscale.security.client_quotas import ConnectionQuota
from kafscale.security.quota_rules import plain_address
from kafscale.security.rates import Windows
from kafscale.security.sasl_service import SaslService
from kafscale.server.connection import Connection
from kafscale.server.connection_host import (
    ConnectionGate,
    GatedConnection,
    HostedConnection,
    RequestDispatcher,
)
from kafscale.server.frame_lanes import share_key
from kafscale.server.frames import FrameMemory
from kafscale.server.sasl_gate import SaslGate
from kafscale.server.tls_transport import TlsServices, TlsTransport
from kafscale.settings.listener_list import ListenerSpec
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# Large enough that a busy producer's frames arrive with few system calls, and used by all connections in turn.
RECEIVE_BUFFER_BYTES = 256 * 1024
SMALL_RECEIVE_BUFFER_BYTES = 4 * 1024
BACKLOG = 1024

MOST_CONNECTIONS = 2**31 - 1
_IDLE_CHECKS_PER_TIMEOUT = 10

NewTls = Callable[[SecurityProtocol, FrameMemory], TlsServices]
"""Makes what the TLS connections of a protocol share."""


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
        max_per_ip: int = MOST_CONNECTIONS,
        max_of_ips: Mapping[str, int] | None = None,
        connection_quota: ConnectionQuota | None = None,
        access_of: AccessFactory = unrestricted,
        tls: NewTls | None = None,
        clocks: Clocks = SYSTEM,
    ) -> None:
        """`slow_request_ms`: a request that takes longer is logged; 0 for none. `max_of_ips`: their own `max_per_ip`.

        `tls`: makes the services of a listener with TLS; None where there is none.
        """
        self.dispatcher: RequestDispatcher
        self.budget = budget
        self.metrics = metrics
        self.frame_max_bytes = frame_max_bytes
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        # For clients whose next request has to wait anyway: the bytes that they send now must be kept.
        self.small_receive_buffer = self.receive_buffer[:SMALL_RECEIVE_BUFFER_BYTES]
        self.frame_memory = FrameMemory(pool, budget)
        self.slow_request_sec = slow_request_ms / 1000 or math.inf
        self.access_of = access_of
        self._tls = tls
        self._clocks = clocks
        self._max_per_ip = max_per_ip
        self._max_of_ips = max_of_ips or {}
        self._count_by_ip: Counter[str] = Counter()
        self._connection_quota = connection_quota or ConnectionQuota(Windows(1, 1000), 1)
        self._max_connections = max_connections
        self._max_idle_sec = max_idle_ms / 1000
        self._connections: set[HostedConnection] = set()
        self._requests = TaskOwner()
        self._servers: list[asyncio.Server] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._no_connections = asyncio.Event()
        self._no_connections.set()
        self._repeated_lines = RepeatedLines(time.monotonic)
        self._sasl: SaslService | None = None

    async def bind(self, spec: ListenerSpec) -> tuple[str, int]:
        """Bind an address without accepting clients yet; returns the one in use (for port 0 the system's choice).

        Raises `StartupError` if that is not possible.
        """
        loop = asyncio.get_running_loop()
        host, port = spec.address.host, spec.address.port
        try:
            server = await loop.create_server(
                self._factory(spec), host, port, backlog=BACKLOG, start_serving=False
            )
        except OSError as problem:
            for taken in self._servers:
                taken.close()
            raise cannot_listen(spec.address, "Kafka clients", problem, spec.set_by) from problem
        self._servers.append(server)
        bound = server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    def _factory(self, spec: ListenerSpec) -> Callable[[], asyncio.BufferedProtocol]:
        """Makes the protocol of a new client's socket."""
        if not spec.protocol.is_tls:
            return lambda: Connection(self, spec.name, spec.protocol)
        assert self._tls is not None
        services = self._tls(spec.protocol, self.frame_memory)
        return lambda: TlsTransport(Connection(self, spec.name, spec.protocol), services)

    async def start(self, dispatcher: RequestDispatcher, sasl: SaslService | None = None) -> None:
        """Accept clients at the bound addresses. `sasl`: for those of listeners with SASL."""
        self.dispatcher = dispatcher
        self._sasl = sasl
        for server in self._servers:
            await server.start_serving()
        self._check_idle()

    # --- services for connections

    def open_gate(self, connection: GatedConnection) -> ConnectionGate | None:
        """See `ConnectionHost`. Raises `RuntimeError` where SASL is wanted and there is none."""
        if not connection.protocol.is_sasl:
            return None
        if self._sasl is None:
            raise RuntimeError(f"the listener {connection.listener} has no SASL")
        now_ms, steady_ms = self._clocks.now_ms, self._clocks.steady_ms
        return SaslGate(connection, self._sasl, self.dispatcher, now_ms=now_ms, steady_ms=steady_ms)

    def admit(self, connection: HostedConnection) -> bool:
        """True if there is a place for one more client."""
        self._connections.add(connection)
        self._no_connections.clear()
        counters = self.metrics.connections
        counters.accepted += 1
        counters.current += 1
        self._count_by_ip[connection.peer_host] += 1
        if len(self._connections) > self._max_connections:
            counters.rejected += 1
            self.log_refusal(
                "connections",
                connection.peer_host,
                f"there are KAFSCALE_MAX_CONNECTIONS ({self._max_connections}) already",
            )
            return False
        most = self._most_of(connection.peer_host)
        if self._count_by_ip[connection.peer_host] > most:
            counters.rejected_per_ip += 1
            setting = "KAFSCALE_MAX_CONNECTIONS_PER_IP" + ("" if most == self._max_per_ip else "_OVERRIDES")
            self.log_refusal(
                "connections per ip",
                connection.peer_host,
                f"there are {setting} ({most}) of this address already",
            )
            return False
        if self._connection_quota.is_set:
            _apply_quota(self._connection_quota, connection, self.metrics)
        return True

    def _most_of(self, host: str) -> int:
        """How many connections the address may have."""
        if not self._max_of_ips:
            return self._max_per_ip
        return self._max_of_ips.get(plain_address(host) or host, self._max_per_ip)

    def remove(self, connection: HostedConnection) -> None:
        """The connection is gone."""
        if connection in self._connections:
            self._connections.remove(connection)
            self.metrics.connections.current -= 1
            self._count_by_ip[connection.peer_host] -= 1
            if not self._count_by_ip[connection.peer_host]:
                del self._count_by_ip[connection.peer_host]
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

    def abort(self) -> None:
        """Stop listening and end every connection at once, as the system does with those of a killed process."""
        for connection in list(self._connections):
            connection.abort()
        self.stop_accepting()

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


def _apply_quota(quota: ConnectionQuota, connection: HostedConnection, metrics: Metrics) -> None:
    """Count a new connection; one too many is not read from, and closed after the throttle time (KIP-612)."""
    loop, host = asyncio.get_running_loop(), connection.peer_host
    delay_ms = quota.record(host, share_key(host), loop.time() * 1000)
    if delay_ms:
        metrics.throttle(QuotaKind.CONNECTION).observe(delay_ms / 1000)
        connection.mute.extend(delay_ms)
        # Not now: the loop begins to read after this, whatever was paused before.
        loop.call_soon(connection.stop_reading)
        loop.call_later(delay_ms / 1000, connection.abort)
