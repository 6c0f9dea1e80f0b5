"""What a connection needs of the broker around it."""

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from kafscale.memory.memory_budget import MemoryBudget
from kafscale.ops.metrics import Metrics
from kafscale.server.frames import FrameMemory

if TYPE_CHECKING:
    from kafscale.server.connection import Connection


class RequestDispatcher(Protocol):
    """What a connection does with a whole frame (`Dispatcher`)."""

    def dispatch(self, connection: "Connection", frame: memoryview) -> Awaitable[None] | None:
        """See `Dispatcher.dispatch`."""


class ConnectionHost(Protocol):
    """What all connections of a broker share (`Listener`)."""

    receive_buffer: memoryview
    small_receive_buffer: memoryview
    frame_max_bytes: int
    frame_memory: FrameMemory
    budget: MemoryBudget
    metrics: Metrics

    @property
    def dispatcher(self) -> RequestDispatcher:
        """Where frames go."""

    def admit(self, connection: "Connection") -> bool:
        """Whether there is a place for one more client."""

    def remove(self, connection: "Connection") -> None:
        """The connection is gone."""

    def run_request(self, request: Coroutine[Any, Any, None]) -> None:
        """Run what a request left to do, beyond the connection's end if need be."""

    def log_refusal(self, kind: str, client: str, problem: str) -> None:
        """Log why a client was turned away; lines of one kind and client are limited."""

    def log_failure(self, client: str, problem: Exception) -> None:
        """Log a defect that ended a request; lines of one place in the code are limited."""
