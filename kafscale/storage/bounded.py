"""Many calls at once, but only so many: for work that goes over a whole bucket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_bounded(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], limit: int
) -> list[Result]:
    """The results of `function` for all items, in their order, at most `limit` calls under way at a time.

    The first error ends the other calls and is raised.
    """
    results: dict[int, Result] = {}
    numbered = enumerate(items)

    async def work() -> None:
        for number, item in numbered:
            results[number] = await function(item)

    await _together([asyncio.create_task(work()) for _ in range(limit)])
    return [results[number] for number in range(len(results))]


async def map_stream_bounded(
    function: Callable[[Item], Awaitable[Result]], items: AsyncIterator[Item], limit: int
) -> list[Result]:
    """As `map_bounded`, for items that come one after the other; no more are taken than are worked on."""
    results: dict[int, Result] = {}
    taking = asyncio.Lock()
    taken = 0

    async def work() -> None:
        nonlocal taken
        while True:
            async with taking:
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
                number, taken = taken, taken + 1
            results[number] = await function(item)

    await _together([asyncio.create_task(work()) for _ in range(limit)])
    return [results[number] for number in range(len(results))]


async def _together(tasks: list[asyncio.Task[None]]) -> None:
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
