"""The rate of background work: a limit of units per second on average, shared by all its users."""

import asyncio


class Pace:
    """A budget that every user waits for after use.

    Unused budget is not saved up: after a rest the work starts at its pace, not with a burst.
    """

    def __init__(self, units_per_sec: float) -> None:
        self._units_per_sec = units_per_sec
        self._free_at_sec = 0.0

    async def spend(self, units: float) -> None:
        """Count these units, and wait for the time that they cost."""
        now_sec = asyncio.get_running_loop().time()
        self._free_at_sec = max(self._free_at_sec, now_sec) + units / self._units_per_sec
        await asyncio.sleep(self._free_at_sec - now_sec)
