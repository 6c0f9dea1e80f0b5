"""An event loop in a daemon thread, and calls into it from other threads and other loops."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

Loop = TypeVar("Loop", bound=asyncio.AbstractEventLoop)
T = TypeVar("T")

CALL_SEC = 600


class LoopThread(Generic[Loop]):
    """Runs coroutines in a thread of its own, from `start` to `stop`."""

    def __init__(self, name: str, new_loop: Callable[[], Loop]) -> None:
        self.name = name
        self._new_loop = new_loop
        self._loop: Loop | None = None
        self._ending: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """True between `start` and `stop`."""
        return self._thread is not None

    @property
    def loop(self) -> Loop:
        """The loop. Raises `RuntimeError` while it does not run."""
        if self._loop is None:
            raise RuntimeError(f"{self.name} is not running: start it, or use it in a `with` block")
        return self._loop

    def start(self) -> None:
        """Start the thread; returns once the loop runs."""
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name=self.name, daemon=True)
        self._thread.start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self._serve(started))

    def _make_loop(self) -> Loop:
        self._loop = self._new_loop()
        return self._loop

    async def _serve(self, started: threading.Event) -> None:
        self._ending = asyncio.Event()
        started.set()
        await self._ending.wait()

    def stop(self) -> None:
        """End the loop with all its tasks, and wait for the thread."""
        thread, loop, ending = self._thread, self._loop, self._ending
        self._thread = self._loop = self._ending = None
        if thread is not None and loop is not None and ending is not None:
            loop.call_soon_threadsafe(ending.set)
            thread.join()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait here. Raises what it raises, and `RuntimeError` in the loop's own thread.

        Raises `TimeoutError` after `CALL_SEC`, longer than anything takes that is not stuck.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(f"{self.name} would wait for itself")
        name = getattr(work, "__qualname__", "a call")
        running = self._submit(work)
        concurrent.futures.wait([running], CALL_SEC)
        if not running.done():
            running.cancel()
            raise TimeoutError(f"{self.name}: {name} has not ended after {CALL_SEC} s")
        return running.result()

    def awaitable(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """The same, to be awaited in another loop."""
        return asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise
