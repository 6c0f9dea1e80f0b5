"""Produce requests that wait for their records to be published, and their deadlines."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from kafscale.memory.memory_budget import MemoryBudget

SWEEP_INTERVAL_SEC = 0.25


class Expirable(Protocol):
    """A request that waits until `deadline_ms` at most, and keeps `held_bytes` of memory meanwhile."""

    deadline_ms: int
    held_bytes: int

    def expire(self) -> None:
        """The deadline has passed."""


class ProducePurgatory:
    """Requests that wait, checked a few times a second while there are any (Kafka's name for it)."""

    def __init__(self, now_ms: Callable[[], int], budget: MemoryBudget) -> None:
        self._now_ms = now_ms
        self._budget = budget
        self._waiting: dict[Expirable, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Expirable) -> None:
        """Watch the request's deadline."""
        self._waiting[request] = None
        self._budget.charge(request.held_bytes)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_SEC, self._sweep)

    def remove(self, request: Expirable) -> None:
        """Remove a request that is answered; no error if it does not wait."""
        if request in self._waiting:
            del self._waiting[request]
            self._budget.release(request.held_bytes)

    def _sweep(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        for request in [request for request in self._waiting if request.deadline_ms <= now_ms]:
            request.expire()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_SEC, self._sweep)

    def close(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
