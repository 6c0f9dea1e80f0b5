"""Runs a test in virtual time, and fails it for a task that is still running or an unhandled error."""

import asyncio
import functools
import gc
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from tests.support.virtual_time import run_virtually

P = ParamSpec("P")


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make an ordinary test function of an async one."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtually(watched(test(*args, **kwargs)))

    return run


async def watched(work: Coroutine[Any, Any, None]) -> None:
    """Do the work, after which no task may still run, and no error be unhandled."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    await work
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"still running: {sorted(task.get_name() for task in left)}"
    gc.collect(1)  # a task whose exception was not retrieved reports that when it is deleted
    assert not unheard, unheard
