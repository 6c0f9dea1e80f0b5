"""Background tasks with an owner: spawned by name, watched, and ended together.

docs/decisions/0058-task-owner.md says which tasks have other owners.
"""

import asyncio
import logging
from collections.abc import Coroutine, Hashable
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TaskOwner:
    """The background tasks of one part of the broker. The exception of a task never vanishes: it is logged, once."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def tasks(self) -> tuple[asyncio.Task[Any], ...]:
        """Those that run."""
        return tuple(self._tasks.values())

    def __contains__(self, key: Hashable) -> bool:
        return key in self._tasks

    def spawn(
        self, work: Coroutine[Any, Any, T], name: str, *, key: Hashable = None, is_awaited: bool = False
    ) -> asyncio.Task[T]:
        """Begin the work. `name` identifies it in the log.

        `key`: while the task runs, `key in owner`; the caller sees to it that no other task has the key.
        `is_awaited`: the caller awaits the task and handles its exception, so that it is not logged here.
        """
        assert key is None or key not in self._tasks, f"{key} has a task already"
        task = asyncio.create_task(work, name=name)
        place = task if key is None else key
        self._tasks[place] = task
        task.add_done_callback(lambda done: self._ended(place, done, is_awaited))
        return task

    def _ended(self, place: Hashable, task: asyncio.Task[Any], is_awaited: bool) -> None:
        del self._tasks[place]
        if task.cancelled():
            return
        # Taken also where it is not logged: asyncio reports an exception that is never taken.
        problem = task.exception()
        if problem is not None and not is_awaited:
            logger.error("a background task failed", extra={"task": task.get_name()}, exc_info=problem)

    async def wait(self, timeout_sec: float | None = None) -> None:
        """Return once the tasks of now have ended, or the time is over."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_sec)

    async def close(self) -> None:
        """Cancel every task and return once all have ended; also those that their ends spawn."""
        while tasks := [task for task in self._tasks.values() if task is not asyncio.current_task()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            # Their callbacks, which take them out here, run after the wait's own.
            await asyncio.sleep(0)
