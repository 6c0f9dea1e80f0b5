"""The memory of the merges that are made side by side."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kafscale.log.life.merge_windows import WINDOW_BYTES

ROOM_BYTES: Final = 4 * WINDOW_BYTES


class MergeRoom:
    """Lets windows read into memory only so far as they fit together; one by itself always does."""

    def __init__(self, limit_bytes: int = ROOM_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def take(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait until so much is free, and count it for the block."""
        while self.used_bytes and self.used_bytes + size_bytes > self._limit_bytes:
            self._freed.clear()
            await self._freed.wait()
        self.used_bytes += size_bytes
        try:
            yield
        finally:
            self.used_bytes -= size_bytes
            self._freed.set()
