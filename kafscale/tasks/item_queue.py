"""A queue of items for one background task, which exists only while there are any."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from kafscale.tasks.owner import TaskOwner

Item = TypeVar("Item")


async def _at_once() -> None:
    pass


class ItemQueue(Generic[Item]):
    """Calls `work` with one item after the other. An item that fails is reported; the others are worked on.

    `before` is awaited each time that the queue begins again after it was empty.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Item], Awaitable[None]],
        report: Callable[[Item, Exception], None],
        before: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        self._name = name
        self._work = work
        self._report = report
        self._before = before
        self._waiting: deque[Item] = deque()
        self._is_running = False
        self._tasks = TaskOwner()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, items: Iterable[Item]) -> None:
        """Work on these after those that wait already; returns at once."""
        self._waiting += items
        if self._waiting and not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), self._name)

    async def settled(self) -> None:
        """Return once no item is left."""
        while self._is_running and self._tasks:
            await self._tasks.wait()

    async def close(self) -> None:
        """Work on no more items."""
        await self._tasks.close()
        self._is_running = False

    async def _run(self) -> None:
        try:
            await self._before()
            while self._waiting:
                item = self._waiting.popleft()
                try:
                    await self._work(item)
                except Exception as problem:  # noqa: BLE001 - reported
                    self._report(item, problem)
        finally:
            self._waiting.clear()
            self._is_running = False
