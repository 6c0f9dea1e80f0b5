"""Deadlines: never early, a little late at most, and no timer left for who waits no longer."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.serving.deadlines import Deadlines
from tests.support.virtual_time import run_virtually


@dataclass(eq=False)
class Waiting:
    expires: Callable[[], None] = lambda: None
    deadline_ms: int | None = None
    ended_at_ms: list[float] = field(default_factory=list)

    def expired(self) -> None:
        self.ended_at_ms.append(asyncio.get_running_loop().time() * 1000)
        self.expires()


@given(st.lists(st.tuples(st.floats(0, 0.05), st.integers(1, 90_000), st.booleans()), max_size=20))
def test_a_wait_ends_once_never_early_at_most_a_fiftieth_late(
    waits: list[tuple[float, int, bool]],
) -> None:
    async def play() -> None:
        loop, deadlines, begun = asyncio.get_running_loop(), Deadlines(), []
        for pause_sec, wait_ms, is_removed in waits:
            await asyncio.sleep(pause_sec)
            waiter = Waiting()
            begun.append((waiter, loop.time() * 1000, wait_ms, is_removed))
            deadlines.add(waiter, wait_ms)
        for waiter, _, _, is_removed in begun:
            if is_removed:
                deadlines.remove(waiter)
        await asyncio.sleep(100)
        assert len(deadlines) == 0
        for waiter, began_ms, wait_ms, is_removed in begun:
            if is_removed and not waiter.ended_at_ms:
                continue
            (ended_ms,) = waiter.ended_at_ms
            late_ms = ended_ms - began_ms - wait_ms
            assert -1e-6 <= late_ms <= max(1, min(10, wait_ms / 50)) + 1e-6

    run_virtually(play())


def test_waits_that_end_together_share_one_timer() -> None:
    async def play() -> None:
        deadlines, waiters = Deadlines(), [Waiting() for _ in range(3)]
        for waiter in waiters:
            deadlines.add(waiter, 500)
            await asyncio.sleep(0.0001)
        assert len({waiter.deadline_ms for waiter in waiters}) <= 2
        for waiter in waiters:
            deadlines.remove(waiter)
            deadlines.remove(waiter)  # no error
        assert len(deadlines) == 0 and not deadlines._moments

    run_virtually(play())


def test_an_answered_waiter_is_not_called_and_errors_stay_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        deadlines, second, last = Deadlines(), Waiting(), Waiting()

        def fail() -> None:
            deadlines.remove(second)
            raise RuntimeError("a defect")

        for waiter in (Waiting(fail), second, last):
            deadlines.add(waiter, 500)
        with caplog.at_level(logging.ERROR):
            await asyncio.sleep(1)
        assert not second.ended_at_ms
        assert len(last.ended_at_ms) == 1
        assert "a defect" in caplog.text

    run_virtually(play())
