"""The lives of brokers on one event loop: what a broker started can be ended without its help, as by `kill -9`.

A broker runs in a context of its own, which everything inherits that it starts: so its tasks and timers are known.
"""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast
from weakref import WeakSet

from kafscale.testing.clock import MovableLoop

T = TypeVar("T")

_LIFE: "contextvars.ContextVar[Life | None]" = contextvars.ContextVar("life", default=None)

_ROUNDS = 100
_ROUND_SEC = 0.1


class Life:
    """One run of a broker, from its start to its stop or its death."""

    def __init__(self) -> None:
        self.is_over = False
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._beginning = 0
        self._context = contextvars.copy_context()
        self._context.run(_LIFE.set, self)

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a part of this life."""
        return asyncio.get_running_loop().create_task(work, name=name, context=self._context)

    def add(self, task: asyncio.Task[Any]) -> None:
        """A task of this life begins.

        If the life is over, the task is cancelled after its first step: what its coroutine was given, a socket or
        another coroutine, it must take before it can give it back.
        """
        self.tasks.add(task)
        if self.is_over:
            self._beginning += 1
            asyncio.get_running_loop().call_soon(self._begun, task)

    def _begun(self, task: asyncio.Task[Any]) -> None:
        self._beginning -= 1
        task.cancel()

    async def accepted(self) -> None:
        """Wait until every connection that is being accepted has its transport.

        asyncio forgets the socket of one whose listening socket is closed in between.
        """
        while any(_is_unbegun_accept(task) for task in self.tasks):  # noqa: ASYNC110 - a turn of the loop
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Let nothing of it run any more. Raises `RuntimeError` if a task goes on however often it is cancelled."""
        self.is_over = True
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
            if self._beginning:
                continue
            tasks = {task for task in self.tasks if not task.done()}
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_ROUND_SEC)
        left = sorted(task.get_name() for task in self.tasks if not task.done())
        raise RuntimeError(f"tasks of a killed broker do not end: {', '.join(left)}")


def _is_unbegun_accept(task: asyncio.Task[Any]) -> bool:
    work = task.get_coro()
    return (
        inspect.iscoroutine(work)
        and inspect.getcoroutinestate(work) == inspect.CORO_CREATED
        and "_accept_connection" in work.__qualname__
    )


class LivesLoop(MovableLoop):
    """An event loop that knows whose its tasks and timers are, and whose time tests move."""

    def create_task(self, coro: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:  # type: ignore[override]
        """See `asyncio`. A task of a life that is over is cancelled after its first step."""
        task = cast("asyncio.Task[T]", super().create_task(coro, **options))
        life = _life_of(options.get("context"))
        if life is not None:
            life.add(task)
        return task

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio`. A timer of a life that is over does nothing."""
        life = _life_of(context)
        if life is None:
            return super().call_at(when, callback, *args, context=context)

        def call() -> None:
            if not life.is_over:
                callback(*args)

        return super().call_at(when, call, context=context)


def _life_of(context: contextvars.Context | None) -> Life | None:
    return _LIFE.get() if context is None else context.get(_LIFE)


class _Link:
    """A store as one life reaches it: not at all once that is over, as when its process is gone."""

    def __init__(self, store: object, life: Life) -> None:
        self._store = store
        self._life = life

    def __getattr__(self, name: str) -> Any:
        if self._life.is_over:
            raise asyncio.CancelledError("the broker was killed")
        return getattr(self._store, name)


def linked(store: T, life: Life) -> T:
    """The store for a broker of this life."""
    return cast(T, _Link(store, life))
