"""One wait for each key, for all callbacks that depend on its outcome."""

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Generic, TypeVar

from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Outcome = TypeVar("Outcome")


class KeyedWait(Generic[Key, Outcome]):
    """Awaits `wait(key)` once for all callbacks of a key; each is called once, with the outcome.

    `otherwise` is the outcome of a wait that is cancelled or raises. `joins`: a callback that is added during a
    wait gets that one's outcome; if not, it gets that of another wait, which begins after it was added.
    """

    def __init__(
        self, name: str, wait: Callable[[Key], Awaitable[Outcome]], otherwise: Outcome, *, joins: bool
    ) -> None:
        self._name = name
        self._wait = wait
        self._otherwise = otherwise
        self._joins = joins
        self._callbacks: dict[Key, list[Callable[[Outcome], None]]] = {}
        self._tasks = TaskOwner()

    def add(self, key: Key, callback: Callable[[Outcome], None]) -> None:
        """Call back once the outcome is known."""
        callbacks = self._callbacks.get(key)
        if callbacks is not None:
            callbacks.append(callback)
            return
        self._callbacks[key] = [callback]
        self._tasks.spawn(self._run(key), f"{self._name} {key}")

    async def _run(self, key: Key) -> None:
        try:
            while self._callbacks[key]:
                await self._run_once(key)
        finally:
            self._call_back(key)

    async def _run_once(self, key: Key) -> None:
        callbacks: list[Callable[[Outcome], None]] = []
        if not self._joins:
            callbacks, self._callbacks[key] = self._callbacks[key], []
        outcome = self._otherwise
        try:
            outcome = await self._wait(key)
        finally:
            if self._joins:
                callbacks, self._callbacks[key] = self._callbacks[key], []
            self._call_each(key, callbacks, outcome)

    async def close(self) -> None:
        """Cancel the waits; their callbacks are called."""
        await self._tasks.close()
        # A task that is cancelled before its first step does not get as far as its callbacks.
        for key in tuple(self._callbacks):
            self._call_back(key)

    def _call_back(self, key: Key) -> None:
        self._call_each(key, self._callbacks.pop(key), self._otherwise)

    def _call_each(self, key: Key, callbacks: Iterable[Callable[[Outcome], None]], outcome: Outcome) -> None:
        for callback in callbacks:
            try:
                callback(outcome)
            except Exception:
                # A defect. The others are of other clients, which wait for their answers.
                logger.exception("a callback failed", extra={"wait": f"{self._name} {key}"})
