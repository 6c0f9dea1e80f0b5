"""The rate of background work: a limit of units per second on average, shared by its users; and that of sealing."""

import asyncio
import math
from typing import Final

LEAST_BYTES_PER_SEC: Final = 96 * 1024 * 1024
"""A tenth of a core. A broker that is written to more slowly has its slices in memory still when they are sealed."""
SPREAD_SEC: Final = 60.0


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


def seal_bytes_per_sec(debt_bytes: int) -> float:
    """The pace of sealing large segments, for so many bytes that are not sealed.

    A burst of produce requests is to have the broker to itself; what it leaves is sealed in the next minute. A broker
    that is never at rest has to seal as fast as it is written to, and does, with the debt of a minute.
    """
    return max(LEAST_BYTES_PER_SEC, debt_bytes / SPREAD_SEC)
