"""The clocks of this machine: what time it is, and how much of it has passed."""

import sys
import time
from collections.abc import Callable


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


def steady_clock() -> Callable[[], int]:
    """Unix milliseconds as of now and the time since: a clock that is set does not move it."""
    offset_ms = now_ms() - steady_ms()
    return lambda: steady_ms() + offset_ms
