"""The services that a connection needs of the broker around it, and those that it offers."""

from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol

from kafscale.memory.memory_budget import MemoryBudget
from kafscale.ops.metrics import FrameRefusal, Metrics
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.security.access import Access, AccessFactory
from kafscale.security.principal import Principal
from kafscale.server.frames import FrameLimits, FrameMemory
from kafscale.server.mute import Mute
from kafscale.server.reply_queue import ReplySlot
from kafscale.serving.context import ClientSoftware
from kafscale.serving.request_throttle import RequestThrottle


class Requester(Protocol):
    """A connection as the dispatcher sees it.

    `is_known`: False before a client that must authenticate itself has done so. It uses no client's quota till then.
    """

    peer_host: str
    listener: ListenerName
    protocol: SecurityProtocol
    software: ClientSoftware
    access: Access
    mute: Mute
    is_known: bool

    def open_slot(self, api_key: ApiKey, throttle: RequestThrottle | None = None) -> ReplySlot:
        """The place of the reply. `throttle`: of a client with quotas."""

    def body_is_read(self) -> None:
        """The request's bytes are not needed any more, although its answer may take long."""

    def refuse(self, reason: FrameRefusal, problem: str) -> None:
        """Close the connection because of a frame that its client sent."""


class HostedConnection(Protocol):
    """A connection as the listener sees it."""

    peer_host: str
    mute: Mute

    @property
    def takes_replies(self) -> bool:
        """True if the client reads its replies."""

    @property
    def is_stopping(self) -> bool:
        """True if no more requests are handled."""

    def is_idle_since(self, before_sec: float) -> bool:
        """True if nothing has moved since then, by the loop's clock."""

    def stop_reading(self) -> None:
        """The broker is stopping: answer the requests in flight, and handle no more."""

    def close(self) -> None:
        """Close when every reply that may leave has left."""

    def abort(self) -> None:
        """Close at once."""


class RequestDispatcher(Protocol):
    """Takes the whole frames of a connection (`Dispatcher`)."""

    def dispatch(self, requester: Requester, frame: memoryview) -> Awaitable[None] | None:
        """See `Dispatcher.dispatch`."""


class ConnectionGate(RequestDispatcher, Protocol):
    """Takes the frames of one connection before the dispatcher does, as long as its client is not known."""

    def close(self) -> None:
        """The connection is gone."""


class GatedConnection(Requester, Protocol):
    """A connection as its gate sees it."""

    protocol: SecurityProtocol
    frame_limits: FrameLimits

    def authenticated(self, principal: Principal) -> None:
        """The client is known."""

    def close(self) -> None:
        """Close when every reply that may leave has left."""


class ConnectionHost(Protocol):
    """The things that all connections of a broker share (`Listener`).

    `slow_request_sec`: a request that takes so long is logged; infinity for none. `access_of`: gives a connection its
    access when its client is known.
    """

    receive_buffer: memoryview
    small_receive_buffer: memoryview
    frame_max_bytes: int
    frame_memory: FrameMemory
    budget: MemoryBudget
    metrics: Metrics
    slow_request_sec: float
    access_of: AccessFactory

    @property
    def dispatcher(self) -> RequestDispatcher:
        """Takes whole frames."""

    def open_gate(self, connection: GatedConnection) -> ConnectionGate | None:
        """The gate of a connection whose client must authenticate itself; None for another one."""

    def admit(self, connection: HostedConnection) -> bool:
        """True if there is a place for one more client."""

    def remove(self, connection: HostedConnection) -> None:
        """The connection is gone."""

    def run_request(self, request: Coroutine[Any, Any, None]) -> None:
        """Run the rest of a request, beyond the connection's end if need be."""

    def log_refusal(self, kind: str, client: str, problem: str) -> None:
        """Log why a client was refused; lines of one kind and client are limited."""

    def log_failure(self, client: str, problem: Exception) -> None:
        """Log a defect that ended a request; lines of one place in the code are limited."""

    def log_slow(self, client: str, fields: dict[str, object]) -> None:
        """Log where the time of a slow request went; lines of one client and API are limited."""
