"""The rate of background work: a limit of bytes per second on average, shared by all its users."""

import asyncio


class Pace:
    """A budget that every user waits for after use.

    Unused budget is not saved up: after a rest the work starts at its pace, not with a burst.
    """

    def __init__(self, bytes_per_sec: int) -> None:
        self._bytes_per_sec = bytes_per_sec
        self._free_at_sec = 0.0

    async def spend(self, size_bytes: int) -> None:
        """Count these bytes, and wait for the time that they cost."""
        now_sec = asyncio.get_running_loop().time()
        self._free_at_sec = max(self._free_at_sec, now_sec) + size_bytes / self._bytes_per_sec
        await asyncio.sleep(self._free_at_sec - now_sec)
