"""Locks by name, which are there only while somebody holds or wants one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedLocks:
    """One holder for each name at a time, in the order of asking."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, ...], asyncio.Lock] = {}
        self._users: dict[tuple[str, ...], int] = {}

    @asynccontextmanager
    async def held(self, *name: str) -> AsyncIterator[None]:
        """The block is alone with the name."""
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with self._locks.setdefault(name, asyncio.Lock()):
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]
