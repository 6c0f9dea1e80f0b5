"""Deadlines of requests that wait: one timer of the event loop for all that end together."""

import asyncio
import logging
from math import ceil
from typing import Protocol

logger = logging.getLogger(__name__)

# How much later than requested a wait may end: by one part in so many of it, and no more than so much.
_LATE_PART = 50
_LATE_MAX_MS = 10


class Waiter(Protocol):
    """A request that waits. `deadline_ms` belongs to `Deadlines`: None before and after."""

    deadline_ms: int | None

    def expired(self) -> None:
        """The wait is over."""


class _Moment:
    """The waiters whose waits end at the same time, in the order in which they began."""

    __slots__ = ("timer", "waiters")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.waiters: dict[Waiter, None] = {}


class Deadlines:
    """Ends waits, never early and at most a fiftieth late. Milliseconds of the loop's clock.

    Waits are rounded up so that many end in one call of the loop: a timer for each costs more than the rest of
    an idle consumer's poll, and replies that leave together are followed by requests that arrive together.
    """

    def __init__(self) -> None:
        self._moments: dict[int, _Moment] = {}

    def __len__(self) -> int:
        return sum(len(moment.waiters) for moment in self._moments.values())

    def add(self, waiter: Waiter, wait_ms: int) -> None:
        """Call `waiter.expired` after `wait_ms`, unless it is removed before."""
        assert waiter.deadline_ms is None
        step_ms = min(wait_ms // _LATE_PART, _LATE_MAX_MS) or 1
        at_ms = waiter.deadline_ms = ceil((self._now_ms() + wait_ms) / step_ms) * step_ms
        moment = self._moments.get(at_ms)
        if moment is None:
            moment = self._moments[at_ms] = self._begin(at_ms)
        moment.waiters[waiter] = None

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter; no error if it does not wait."""
        at_ms, waiter.deadline_ms = waiter.deadline_ms, None
        moment = None if at_ms is None else self._moments.get(at_ms)
        if at_ms is None or moment is None:
            return
        del moment.waiters[waiter]
        if not moment.waiters:
            moment.timer.cancel()
            del self._moments[at_ms]

    def _begin(self, at_ms: int) -> _Moment:
        return _Moment(asyncio.get_running_loop().call_at(at_ms / 1000, self._end, at_ms))

    def _end(self, at_ms: int) -> None:
        for waiter in self._moments.pop(at_ms).waiters:
            # The answer of one may have ended another's wait.
            if waiter.deadline_ms == at_ms:
                waiter.deadline_ms = None
                try:
                    waiter.expired()
                except Exception:
                    logger.exception("could not answer a request at the end of its wait")
