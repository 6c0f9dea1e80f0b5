"""An event loop in virtual time whose callbacks belong to processes, which can be stopped, continued and killed.

What runs in a process's context (tasks, timers and callbacks inherit it) is that process. While a process is
stopped nothing of it runs, as under SIGSTOP; a process that is killed stays stopped: not even its `finally`
blocks run, and what it had sent arrives all the same. What belongs to no process is the world: the stores, the
network, clients, and whoever makes trouble.
"""

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from tests.support.virtual_time import VirtualTimeLoop

Result = TypeVar("Result")

_PROCESS: contextvars.ContextVar["Process"] = contextvars.ContextVar("process")

WORLD = contextvars.Context()
"""For what a process causes outside of itself: a request in flight, for one."""


class Process:
    """One simulated operating system process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.context = contextvars.Context()
        self.context.run(_PROCESS.set, self)
        self._held: list[Any] | None = None
        self._is_over = False

    @property
    def is_stopped(self) -> bool:
        """True if nothing of it runs."""
        return self._held is not None

    def stop(self) -> None:
        """Let nothing of it run from now on."""
        if self._held is None and not self._is_over:
            self._held = []

    def clear_away(self) -> None:
        """The simulation is over: let what is left of it be cancelled."""
        self._is_over = True
        self.go_on()

    def go_on(self) -> None:
        """Let it run again: as asyncio, first what came from outside meanwhile, then the timers that are over."""
        held, self._held = self._held, None
        if held:
            timers = [handle for handle in held if handle.is_timer and handle._context is not self.context]
            waiting = set(map(id, timers))
            loop: Any = asyncio.get_running_loop()
            loop._waiting.extend(handle for handle in held if id(handle) not in waiting)
            loop._waiting.extend(sorted(timers, key=lambda timer: timer._when))

    def run(self, work: Coroutine[Any, Any, Result], name: str) -> "asyncio.Task[Result]":
        """Run a task as part of it."""
        return asyncio.get_running_loop().create_task(work, name=name, context=self.context.copy())

    def call_at(self, when_sec: float, callback: Callable[..., object], *args: Any) -> None:
        """Something comes from outside, at this time: `callback` takes it in."""
        asyncio.get_running_loop().call_at(when_sec, callback, *args, context=self.context)

    def holds_back(self, handle: Any) -> bool:
        """Keep what is due if the process is stopped."""
        if self._held is None:
            return False
        self._held.append(handle)
        return True


def current_process() -> Process:
    """The process that runs now. Raises `LookupError` in the world."""
    return _PROCESS.get()


class _Handle(asyncio.Handle):
    """As asyncio's, without what serves debugging: half of a run's time goes through here."""

    is_timer = False

    def __init__(self, callback: Any, args: Any, loop: Any, context: contextvars.Context | None) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None

    def _run(self) -> None:
        process = self._context.get(_PROCESS)
        if process is not None and process.holds_back(self):
            return
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as problem:  # noqa: BLE001 - as asyncio does
            what = {"message": f"callback {self._callback}", "exception": problem, "handle": self}
            self._loop.call_exception_handler(what)


class _Timer(_Handle):
    is_timer = True

    def __init__(
        self, when_sec: float, callback: Any, args: Any, loop: Any, context: contextvars.Context | None
    ) -> None:
        super().__init__(callback, args, loop, context)
        self._when = when_sec

    def when(self) -> float:
        """See `asyncio.TimerHandle`."""
        return self._when


MOST_TURNS = 100_000
"""Turns of the loop at one moment, from which on its time stands still: a task waits in circles."""


class ProcessLoop(VirtualTimeLoop):
    """Jumps from one timer to the next, and holds back what belongs to a process that is stopped.

    Timers of the same time run in the order in which they were set. The exception handler is called if time stands
    still.
    """

    def __init__(self) -> None:
        super().__init__()
        self.owners: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()
        self._waiting: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()
        self._now_sec = 0.0
        self._turns = 0

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._now_sec

    def _run_once(self) -> None:
        waiting, timers = self._waiting, self._timers
        if not waiting and not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise RuntimeError("every task waits and no timer is set: the simulation is stuck")
            if timers[0][0] > self._now_sec:
                self._now_sec, self._turns = timers[0][0], 0
        self._turns += 1
        if self._turns == MOST_TURNS:
            self.call_exception_handler({"message": f"time stands still at {self._now_sec} s"})
        while timers and timers[0][0] <= self._now_sec:
            waiting.append(heapq.heappop(timers)[2])
        for _ in range(len(waiting)):
            handle = waiting.popleft()
            if not handle._cancelled:
                handle._run()

    def create_task(
        self, coro: Any, *, name: object = None, context: contextvars.Context | None = None
    ) -> Any:
        """See `asyncio`."""
        task = super().create_task(coro, name=name, context=context)
        process = _PROCESS.get(None) if context is None else context.get(_PROCESS)
        if process is not None:
            self.owners[task] = process.name
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        """See `asyncio`."""
        handle = _Handle(callback, args, self, context)
        self._waiting.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        """See `asyncio`."""
        return self.call_at(self._now_sec + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        """See `asyncio`."""
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """There are no threads: it is done when its turn comes."""
        future = self.create_future()

        def compute() -> None:
            try:
                result = func(*args)
            except BaseException as problem:  # noqa: BLE001 - it is the caller's
                future.set_exception(problem)
            else:
                future.set_result(result)

        self.call_soon(compute)
        return future


def what_tasks_wait_for() -> list[str]:
    """Every task's process and name, and where it stands, innermost last."""
    lines = []
    loop: Any = asyncio.get_running_loop()
    for task in asyncio.all_tasks():
        owner = loop.owners.get(task, "the world")
        lines.append(f"{owner}: {task.get_name()}: {' > '.join(_frames(task.get_coro()))}")
    return sorted(lines)


def _frames(awaited: Any) -> Iterator[str]:
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None and "/asyncio/" not in frame.f_code.co_filename:
            yield f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)


async def end_everything() -> None:
    """Cancel every other task of the loop until none is left."""
    myself = asyncio.current_task()
    for _ in range(100):
        tasks = [task for task in asyncio.all_tasks() if task is not myself]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=0.01)
    raise AssertionError(f"tasks that do not end: {asyncio.all_tasks()}")


def run_simulation(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end on a loop of its own."""
    with asyncio.Runner(loop_factory=ProcessLoop) as runner:
        return runner.run(main)
