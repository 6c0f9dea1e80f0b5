"""One call for all callers that want the same thing while it is in progress."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kafscale.tasks.owner import TaskOwner

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def _as_it_is(value: Value) -> Value:
    return value


def _nothing(value: object) -> None:
    pass


class SingleFlight(Generic[Key, Value]):
    """Joins concurrent calls by key. A caller that is cancelled does not cancel the call for the others.

    `hand_out` is called for each caller before anything else runs, and returns what that caller gets. `release`
    is called with the value after the last of them, and with what a caller got that is cancelled before it can
    take it: a value that counts its owners has one in between.
    """

    def __init__(
        self, hand_out: Callable[[Value], Value] = _as_it_is, release: Callable[[Value], None] = _nothing
    ) -> None:
        self._hand_out = hand_out
        self._release = release
        self._callers: dict[Key, list[asyncio.Future[Value]]] = {}
        self._tasks = TaskOwner()

    def __contains__(self, key: Key) -> bool:
        return key in self._callers

    async def run(self, key: Key, call: Callable[[], Awaitable[Value]]) -> Value:
        """The result of `call`, made now or already in progress for `key`; every caller gets its error."""
        caller: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        callers = self._callers.get(key)
        if callers is None:
            self._callers[key] = [caller]
            self._tasks.spawn(self._call(key, call), f"single flight {key}")
        else:
            callers.append(caller)
        try:
            return await caller
        except asyncio.CancelledError:
            if caller.done() and not caller.cancelled() and caller.exception() is None:
                # Cancelled after the value was handed out, and before it could be taken.
                self._release(caller.result())
            raise

    async def _call(self, key: Key, call: Callable[[], Awaitable[Value]]) -> None:
        try:
            value = await call()
        except asyncio.CancelledError:
            for caller in self._callers.pop(key):
                caller.cancel()
            raise
        except Exception as problem:  # noqa: BLE001 - the callers get it
            for caller in self._waiting(key):
                caller.set_exception(problem)
        else:
            for caller in self._waiting(key):
                caller.set_result(self._hand_out(value))
            self._release(value)

    def _waiting(self, key: Key) -> list[asyncio.Future[Value]]:
        return [caller for caller in self._callers.pop(key) if not caller.done()]

    async def close(self) -> None:
        """Cancel the calls in progress and wait for their end."""
        await self._tasks.close()
        # A call that was cancelled before its first step could notify no caller.
        for callers in self._callers.values():
            for caller in callers:
                caller.cancel()
        self._callers.clear()
