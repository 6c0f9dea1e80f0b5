"""Waiting for conditions instead of sleeping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.02
PATIENCE_SEC = 120.0
"""How long tests wait for a condition: no condition takes that long on two cores with 40 busy processes.

Only a test that fails waits so long. Where a shorter limit is what a test asserts, it names its own.
"""

PATIENCE_MS = int(PATIENCE_SEC * 1_000)


class NotInTimeError(AssertionError):
    """The condition was not met in time."""


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = PATIENCE_SEC) -> T:
    """Call `condition` until its result is true, and return that. Raises `NotInTimeError`."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{what}: not within {timeout_s} s")
        time.sleep(POLL_SECONDS)


async def wait_until_async(
    condition: Callable[[], Awaitable[bool]], what: str, timeout_s: float = PATIENCE_SEC
) -> None:
    """`wait_until` for conditions that must be awaited."""
    deadline = time.monotonic() + timeout_s
    while True:
        if await condition():
            return
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{what}: not within {timeout_s} s")
        await asyncio.sleep(POLL_SECONDS)
