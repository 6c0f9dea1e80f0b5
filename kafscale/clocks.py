"""The clocks of this machine: what time it is, and how much of it has passed."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Milliseconds of a clock that only goes forward."""
    return time.monotonic_ns() // 1_000_000


def boot_ms() -> int:
    """Milliseconds of a clock that only goes forward and counts the time in which the machine was suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None and sys.platform == "darwin":
        clock = time.CLOCK_MONOTONIC  # There it counts that time; `time.monotonic` is another clock.
    return steady_ms() if clock is None else time.clock_gettime_ns(clock) // 1_000_000


def thread_cpu_sec() -> float:
    """The CPU time of the calling thread, in seconds."""
    return time.thread_time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clocks of one broker: a value that its parts are given, so that a test can move them together.

    Timers are the event loop's. Durations that only metrics and logs show are measured by `time` directly.
    """

    now_ms: Callable[[], int] = now_ms
    steady_ms: Callable[[], int] = steady_ms
    steady_sec: Callable[[], float] = time.monotonic
    boot_ms: Callable[[], int] = boot_ms

    def steady_clock(self) -> Callable[[], int]:
        """Unix milliseconds as of now and the time since: a clock that is set does not move it."""
        steady_ms = self.steady_ms
        offset_ms = self.now_ms() - steady_ms()
        return lambda: steady_ms() + offset_ms


SYSTEM = Clocks()
"""The machine's."""
