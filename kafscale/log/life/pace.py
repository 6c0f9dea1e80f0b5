"""The rate of background work: a limit of units per second on average, shared by all its users."""

import asyncio
import math


class Pace:
    """A budget that every user waits for after use.

    Unused budget is not saved up: after a rest the work starts at its pace, not with a burst.
    """

    def __init__(self, units_per_sec: float = math.inf) -> None:
        """`units_per_sec` may be changed at any time: it counts for what is spent from then on."""
        self.units_per_sec = units_per_sec
        self._free_at_sec = 0.0

    async def spend(self, units: float) -> None:
        """Count these units, and wait for the time that they cost."""
        now_sec = asyncio.get_running_loop().time()
        self._free_at_sec = max(self._free_at_sec, now_sec) + units / self.units_per_sec
        await asyncio.sleep(self._free_at_sec - now_sec)
