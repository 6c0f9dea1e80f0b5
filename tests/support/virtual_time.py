"""An event loop whose clock jumps to the next timer, so that a run takes no time and repeats exactly."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: the time of the wait is added to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clock_sec = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every task waits and no timer is set: the simulation is stuck")
        self.clock_sec += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """No sockets, no threads; `time()` is virtual seconds since the start."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.clock_sec


def run_virtually(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
