"""Runs a test on the loop that the broker runs on, and fails it for an unhandled error."""

import asyncio
import functools
import gc
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import uvloop

P = ParamSpec("P")
TIMEOUT_SECONDS = 150
"""Before pytest-timeout stops the whole run: a cancelled test shows in its traceback what it waited for."""


def on_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an ordinary test function of an async one."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        uvloop.run(_watched(test(*args, **kwargs)))

    return run


async def _watched(test: Coroutine[Any, Any, None]) -> None:
    unhandled: list[dict[str, Any]] = []

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not _is_of_an_earlier_loop(context):
            unhandled.append(context)

    asyncio.get_running_loop().set_exception_handler(note)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await test
    await asyncio.sleep(0)
    gc.collect(1)  # a task whose exception was not retrieved reports that when it is deleted
    assert not unhandled, unhandled


def _is_of_an_earlier_loop(context: dict[str, Any]) -> bool:
    """True for a call of an earlier test whose loop has ended: gRPC hands its end to any loop of the process."""
    error = context.get("exception")
    return isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
