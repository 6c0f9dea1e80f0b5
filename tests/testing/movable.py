"""Tests that run on a loop whose time they move."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kafscale.testing.clock import MovableLoop


def on_movable_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run the test on such a loop of its own."""

    def run() -> None:
        with asyncio.Runner(loop_factory=MovableLoop) as runner:
            runner.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def movable() -> MovableLoop:
    """The loop of the running test."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MovableLoop)
    return loop
