"""How often others have their turn on the event loop while something long is done on it."""

import asyncio
from collections.abc import Awaitable


async def turns_beside(work: Awaitable[object]) -> int:
    """Do the work, and return how many turns a task had meanwhile that always wants one."""
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
