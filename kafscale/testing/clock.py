"""A clock that tests move: what would happen in the next hour or week happens at once, and in its order.

Theory of operation. `MovableLoop.time()` is the machine's monotonic clock plus an offset, and so are the clocks that
`MovableLoop.clocks` gives to a broker. `advance` does not jump: it **walks**. Whenever the loop has nothing to do,
the offset grows until the next timer is due; that timer runs, and what follows from it, before the clock moves on.
So a broker renews its lease during an hour that takes no time, and what was due at 12:01 happens before what was due
at 12:02. Requests that arrive during a walk, and work in the loop's threads, are finished before the next step.

A step is a 250th of the walk at least, though no more than `longest_step_sec` unless no timer is due before:
what a broker does every 250 ms is not done millions of times in a week. Timers of one step run in the order of their
times.

To bind it, run the broker on the loop and give it the loop's clocks:

    settings = Settings(lease_ttl_sec=LEASE_TTL_SEC, ...)
    with asyncio.Runner(loop_factory=MovableLoop) as runner:
        clocks = runner.get_loop().clocks
        BasicParts(settings, metrics, health, metadata, MemoryStore(clocks.now_ms), clocks=clocks)

With a shorter lease a long walk takes more steps: `MovableLoop(lease_ttl_sec / 4)` keeps it. `loop.advance` is for
other threads, `await loop.advance_async(...)` for every coroutine. Several brokers of a cluster run on one loop:
they need one clock.

Clients stay in real time. A member of a consumer group that does not heartbeat while the clock passes its session
timeout is removed, as in Kafka; a client that still runs joins again. To keep a live member, advance by less than its
session timeout, and wait for a heartbeat between two advances. Records have the time of their client: once the clock
is ahead by more than a topic's retention, new ones are old already, unless the topic has LogAppendTime.
"""

import asyncio
import math
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from kafscale.clocks import SYSTEM, Clocks

_SEC: Final = 1_000_000_000
_MOST_SEC: Final = 100 * 366 * 24 * 3600
_BUSY_TURNS: Final = 10_000
_TURN_WITH_NOTHING_LEFT: Final = 500
_SHORT_STEP_SEC: Final = 0.001
_LOOK_AGAIN_SEC: Final = 0.05
_STEPS: Final = 250

LEASE_TTL_SEC: Final = 3600
"""For brokers on a loop with the default `longest_step_sec`: they renew it often enough in any walk."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Walk:
    """How far the clock is to go, and how far it has come. Threads add to the one, the loop to the other."""

    def __init__(self, longest_step_sec: float) -> None:
        self.offset_ns = 0
        self._longest_step_ns = round(longest_step_sec * _SEC)
        self._step_ns = 0
        self._goal_ns = 0
        self._waiting: list[tuple[int, Future[None]]] = []
        self._lock = threading.Lock()

    def add(self, duration_ns: int) -> "Future[None]":
        """Go on by so much; the result comes when all that was due until then has happened."""
        arrived: Future[None] = Future()
        with self._lock:
            self._goal_ns += duration_ns
            self._step_ns = min(duration_ns // _STEPS, self._longest_step_ns)
            self._waiting.append((self._goal_ns, arrived))
        return arrived

    @property
    def is_on(self) -> bool:
        """True if the clock is to move, or if it is not known yet that what was due has happened."""
        return bool(self._waiting)

    def step(self, timer_sec: float | None) -> bool:
        """Move the clock to the next timer, or to the end of the walk; False if it is there."""
        left_ns = self._goal_ns - self.offset_ns
        if timer_sec is not None:
            left_ns = min(left_ns, max(math.ceil(timer_sec * _SEC), self._step_ns))
        self.offset_ns += left_ns
        return left_ns > 0

    def arrived(self) -> None:
        """All that was due has happened."""
        self._end(lambda future: future.set_result(None), self.offset_ns)

    def jump(self) -> None:
        """Move the clock to the end of the walk: no loop runs whose timers could be due before."""
        self.offset_ns = self._goal_ns
        self.arrived()

    def give_up(self) -> None:
        """The loop is closed."""
        self._end(lambda future: future.set_exception(RuntimeError("the loop of the clock was closed")))

    def _end(self, end: Callable[["Future[None]"], None], until_ns: int | None = None) -> None:
        with self._lock:
            ended = [one for one in self._waiting if until_ns is None or one[0] <= until_ns]
            self._waiting = self._waiting[len(ended) :]
        for _, future in ended:
            if future.set_running_or_notify_cancel():
                end(future)


class _WalkingSelector(selectors.DefaultSelector):
    """Does not wait for the next timer while the clock walks."""

    def __init__(self, walk: _Walk) -> None:
        super().__init__()
        self._walk = walk
        self._jobs_in_threads = self._busy_turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        """See `selectors`. A timeout of 0: the loop has something to do before it waits."""
        if not self._walk.is_on:
            return super().select(timeout)
        events = super().select(0)
        is_idle = timeout != 0 and not events
        if is_idle and self._jobs_in_threads:
            # Their results come at the time at which they were asked for.
            return super().select(_LOOK_AGAIN_SEC if timeout is None else min(timeout, _LOOK_AGAIN_SEC))
        # Clients that keep the loop busy do not hold the clock up.
        self._busy_turns += 1 if timeout == 0 else _TURN_WITH_NOTHING_LEFT
        if is_idle or self._busy_turns >= _BUSY_TURNS:
            self._busy_turns = 0
            if not self._walk.step(_SHORT_STEP_SEC if timeout == 0 else timeout):
                self._walk.arrived()
        return events

    def job_begun(self) -> None:
        """A thread works for the loop."""
        self._jobs_in_threads += 1

    def job_ended(self, _: object) -> None:
        """Its result is there."""
        self._jobs_in_threads -= 1


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose time can be advanced. `clocks`: those of the brokers that run on it.

    `longest_step_sec`: a quarter of the shortest lease on it.

    On Windows it has no subprocesses and no pipes, as any `SelectorEventLoop`.
    """

    def __init__(self, longest_step_sec: float = LEASE_TTL_SEC / 4) -> None:
        self._walk = _Walk(longest_step_sec)
        self._walking = _WalkingSelector(self._walk)
        self._worker = threading.local()
        super().__init__(self._walking)
        self.clocks = self._make_clocks()

    def time(self) -> float:
        """Seconds: the machine's monotonic clock, and all by which the clock was advanced."""
        return time.monotonic() + self._walk.offset_ns / _SEC

    @property
    def offset_sec(self) -> float:
        """By how much the clock is ahead of the machine's. For any thread."""
        return self._walk.offset_ns / _SEC

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once; returns when all that was due meanwhile has happened.

        For any thread but the loop's own and those that work for it, which would wait for themselves: there,
        await `advance_async`. Raises `ValueError` for a duration that is negative or longer than a hundred years,
        `RuntimeError` in such a thread, and when the loop is closed meanwhile.
        """
        if self in (_running_loop(), getattr(self._worker, "loop", None)):
            raise RuntimeError("advance() would wait for its own thread: use `await advance_async(...)` here")
        self._begin(seconds).result()

    async def advance_async(self, seconds: float) -> None:
        """The same, from a coroutine on this or another loop. Cancelled, it moves the clock nevertheless."""
        await asyncio.shield(asyncio.wrap_future(self._begin(seconds)))

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], Any], *args: *Ts
    ) -> "asyncio.Future[Any]":
        """See `asyncio`. A walk waits for its end."""
        if executor is None or isinstance(executor, ThreadPoolExecutor):
            future = super().run_in_executor(executor, self._work, func, *args)
        else:
            future = super().run_in_executor(executor, func, *args)
        self._walking.job_begun()
        future.add_done_callback(self._walking.job_ended)
        return future

    def close(self) -> None:
        """See `asyncio`. Who waits in `advance` gets a `RuntimeError`."""
        super().close()
        self._walk.give_up()

    def _work(self, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        self._worker.loop = self
        try:
            return func(*args)
        finally:
            self._worker.loop = None

    def _begin(self, seconds: float) -> "Future[None]":
        if not 0 <= seconds <= _MOST_SEC:
            raise ValueError(
                f"seconds={seconds} is not legal: a clock moves forward, by 0 to {_MOST_SEC} seconds"
            )
        arrived = self._walk.add(round(seconds * _SEC))
        if self.is_closed():
            self._walk.give_up()
        elif self.is_running():
            self.call_soon_threadsafe(lambda: None)
        else:
            self._walk.jump()
        return arrived

    def _make_clocks(self) -> Clocks:
        walk = self._walk

        def now_ms() -> int:
            return SYSTEM.now_ms() + walk.offset_ns // 1_000_000

        def steady_ms() -> int:
            return SYSTEM.steady_ms() + walk.offset_ns // 1_000_000

        def boot_ms() -> int:
            return SYSTEM.boot_ms() + walk.offset_ns // 1_000_000

        return Clocks(now_ms=now_ms, steady_ms=steady_ms, steady_sec=self.time, boot_ms=boot_ms)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
