"""Doing the parts of one request at the same time, within bounds."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MAX_AT_ONCE: Final = 64


async def for_each(
    items: Iterable[T], act: Callable[[T], Awaitable[R]], at_once: int = MAX_AT_ONCE
) -> list[R]:
    """The results of `act` for each item, in their order; at most `at_once` run at the same time."""
    results: list[R] = []
    remaining = iter(items)
    while part := list(islice(remaining, at_once)):
        results.extend(await asyncio.gather(*(act(item) for item in part)))
    return results
