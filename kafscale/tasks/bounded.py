"""Many calls at once, but only so many: for work that goes over a whole bucket."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from itertools import chain, islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


async def map_bounded(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], limit: int
) -> list[Result]:
    """The results of `function` for all items, in their order, at most `limit` calls in progress at a time.

    The first error cancels the other calls and is raised.
    """
    results: dict[int, Result] = {}
    numbered = enumerate(items)

    async def work(first: tuple[int, Item]) -> None:
        for number, item in chain((first,), numbered):
            results[number] = await function(item)

    tasks = [asyncio.create_task(work(first)) for first in islice(numbered, limit)]
    if tasks:
        await _together(tasks)
    else:
        await asyncio.sleep(0)  # as with items: others have their turn
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


async def in_order_ahead(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], ahead: int
) -> AsyncGenerator[Result, None]:
    """The results in the order of the items, with at most `ahead` calls in progress or waiting to be taken."""
    calls: deque[asyncio.Future[Result]] = deque()
    remaining = iter(items)
    try:
        while True:
            for item in islice(remaining, ahead - len(calls)):
                calls.append(asyncio.ensure_future(function(item)))
            if not calls:
                return
            result = await calls[0]
            calls.popleft()
            yield result
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def _together(tasks: list[asyncio.Task[None]]) -> None:
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
