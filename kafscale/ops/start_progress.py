"""The step that a starting broker waits for, and for how long: for `/readyz`, and for the log when it takes long."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

FIRST_LINE_SEC: Final = 5.0
LONGEST_PAUSE_SEC: Final = 60.0
"""A step is logged when it takes this long, then after twice as long each time, and at least once in this time."""

NOTABLE_SEC: Final = 1.0
"""Steps that took as long are named with the whole start."""

Detail = Callable[[], str | None]


class _Step(NamedTuple):
    name: str
    began_ms: int
    detail: Detail


def _no_detail() -> None:
    return None


class StartProgress:
    """The steps of one start, one after the other. `now_ms`: of a clock that is never set."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._step: _Step | None = None
        self._took_sec: dict[str, float] = {}

    @contextmanager
    def step(self, name: str, detail: Detail = _no_detail) -> Iterator[None]:
        """The block is this step. `detail` returns how far it is; it is called in any thread."""
        self._step = step = _Step(name, self._now_ms(), detail)
        try:
            yield
        finally:
            self._took_sec[name] = self._since(step.began_ms)
            self._step = None

    def _since(self, ms: int) -> float:
        return (self._now_ms() - ms) / 1000

    def reason(self) -> str:
        """The answer of `/readyz`. For any thread."""
        step, whole = self._step, f"the broker is starting, for {self._since(self._began_ms):.1f} s"
        return whole if step is None else f"{whole}: {self._describe(step)}"

    def _describe(self, step: _Step) -> str:
        detail = step.detail()
        return f"{step.name} for {self._since(step.began_ms):.1f} s" + (f" ({detail})" if detail else "")

    def summary(self) -> str:
        """How long the start has taken, and which steps took long."""
        notable = [f"{name} {took:.1f} s" for name, took in self._took_sec.items() if took >= NOTABLE_SEC]
        return f"{self._since(self._began_ms):.1f} s" + (f": {', '.join(notable)}" if notable else "")

    async def log_slow_steps(self) -> None:
        """Log each step that takes long, again and again, until cancelled."""
        logged: _Step | None = None
        pause_sec = FIRST_LINE_SEC
        while True:
            step = self._step
            if step is not logged:
                logged, pause_sec = step, FIRST_LINE_SEC
            due_in_sec = FIRST_LINE_SEC if step is None else pause_sec - self._since(step.began_ms)
            if step is None or due_in_sec > 0:
                # Looked at again in time for a step that begins meanwhile.
                await asyncio.sleep(min(due_in_sec, FIRST_LINE_SEC))
                continue
            logger.warning("the start takes long", extra={"waiting_for": self._describe(step)})
            pause_sec += min(pause_sec, LONGEST_PAUSE_SEC)
