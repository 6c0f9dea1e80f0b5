"""Locks by name; a name without owner or waiter takes no memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedLocks:
    """One owner per name at a time, first come, first served."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, ...], asyncio.Lock] = {}
        self._users: dict[tuple[str, ...], int] = {}

    @asynccontextmanager
    async def held(self, *name: str) -> AsyncIterator[None]:
        """Owns the name's lock for the block."""
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with self._locks.setdefault(name, asyncio.Lock()):
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]
