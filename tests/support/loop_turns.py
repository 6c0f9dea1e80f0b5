"""How often other tasks have their turn on the event loop during a long operation."""

import asyncio
from collections.abc import Awaitable


async def turns_beside(work: Awaitable[object]) -> int:
    """Do the work, and return how many turns a busy task had meanwhile."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(take_turns())
    try:
        await work
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
    return turns
