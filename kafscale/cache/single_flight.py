"""One call for all who ask for the same thing while it is under way."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SingleFlight(Generic[Key, Value]):
    """Joins concurrent calls by key. A caller that is cancelled does not cancel the call for the others."""

    def __init__(self) -> None:
        self._under_way: dict[Key, asyncio.Task[Value]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._under_way

    async def run(self, key: Key, call: Callable[[], Awaitable[Value]]) -> Value:
        """The result of `call`, made now or already under way for `key`; its error is everybody's."""
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._call(key, call), name=f"single flight {key}")
            task.add_done_callback(_look_at_outcome)
            self._under_way[key] = task
        return await asyncio.shield(task)

    async def _call(self, key: Key, call: Callable[[], Awaitable[Value]]) -> Value:
        try:
            return await call()
        finally:
            del self._under_way[key]

    async def close(self) -> None:
        """Cancel what is under way and wait for its end."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _look_at_outcome(task: "asyncio.Task[Any]") -> None:
    # Every caller may have been cancelled: then an error is nobody's, and none that asyncio should report.
    if not task.cancelled():
        task.exception()
