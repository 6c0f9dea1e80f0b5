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


class Turns:
    """The same for nested loops, none of which may be long enough by itself: counts the parts of all of them."""

    __slots__ = ("_left", "_parts_per_turn")

    def __init__(self, parts_per_turn: int = PARTS_PER_TURN) -> None:
        self._parts_per_turn = self._left = parts_per_turn

    async def part_done(self) -> None:
        """Count one more part; others may run after each `parts_per_turn` of them."""
        self._left -= 1
        if not self._left:
            self._left = self._parts_per_turn
            await asyncio.sleep(0)
