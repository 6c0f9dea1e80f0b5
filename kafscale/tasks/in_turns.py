"""A walk over the many parts of one request that lets other work have the event loop in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

PARTS_PER_TURN: Final = 256
"""About a millisecond's worth of partitions to look at or to answer for."""


async def in_turns(items: Iterable[T], parts_per_turn: int = PARTS_PER_TURN) -> AsyncIterator[T]:
    """Every item; others may run after each `parts_per_turn` of them, so `items` must not change meanwhile."""
    remaining = iter(items)
    while part := list(islice(remaining, parts_per_turn)):
        for item in part:
            yield item
        if len(part) == parts_per_turn:
            await asyncio.sleep(0)
