"""Runs a test on the loop that the broker runs on, and fails it for an error that nobody handled."""

import asyncio
import functools
import gc
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import uvloop

P = ParamSpec("P")
TIMEOUT_SECONDS = 150
"""Before pytest-timeout ends the whole run: a cancelled test says in its traceback what it waited for."""


def on_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an ordinary test function of an async one."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        uvloop.run(_watched(test(*args, **kwargs)))

    return run


async def _watched(test: Coroutine[Any, Any, None]) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await test
    await asyncio.sleep(0)
    gc.collect(1)  # a task whose exception nobody looked at says so when it goes
    assert not unhandled, unhandled
