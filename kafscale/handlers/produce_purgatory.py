"""Produce requests that wait for their records to be published, and what they are told at their deadline."""

import asyncio
from collections.abc import Callable
from typing import Protocol

SWEEP_INTERVAL_SEC = 0.25


class Expirable(Protocol):
    """A request that waits until `deadline_ms` at most."""

    deadline_ms: int

    def expire(self) -> None:
        """The deadline has passed."""


class ProducePurgatory:
    """Requests in waiting, looked through a few times a second while there are any (Kafka's name for it)."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._waiting: dict[Expirable, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Expirable) -> None:
        """Watch the request's deadline."""
        self._waiting[request] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_SEC, self._sweep)

    def remove(self, request: Expirable) -> None:
        """The request is answered; no error when it does not wait."""
        self._waiting.pop(request, None)

    def _sweep(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        for request in [request for request in self._waiting if request.deadline_ms <= now_ms]:
            request.expire()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_SEC, self._sweep)

    def close(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
