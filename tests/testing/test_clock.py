"""The movable clock: what is due happens in its order, without waiting."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafscale.testing.clock import MovableLoop
from tests.support.waiting import PATIENCE_SEC
from tests.testing.movable import movable, on_movable_loop

AN_HOUR_SEC = 3600.0
A_WEEK_SEC = 7 * 24 * AN_HOUR_SEC


@contextmanager
def running_loop() -> Iterator[MovableLoop]:
    """A loop in a thread of its own."""
    loop = MovableLoop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SEC)
        loop.close()


@on_movable_loop
async def test_timers_due_meanwhile_run_in_order() -> None:
    loop, ran = movable(), list[str]()
    began_sec = loop.time()

    def late() -> None:
        ran.append("late")
        loop.call_at(began_sec + 2700, ran.append, "set by late, before last")

    loop.call_at(began_sec + 3000, ran.append, "last")
    loop.call_at(began_sec + 2500, late)
    loop.call_at(began_sec + 10, ran.append, "early")
    loop.call_at(began_sec + 2 * AN_HOUR_SEC, ran.append, "not due")
    await loop.advance_async(AN_HOUR_SEC)
    assert ran == ["early", "late", "set by late, before last", "last"]


@on_movable_loop
async def test_sleeps_and_timeouts_of_a_week_take_no_time() -> None:
    loop, began_sec = movable(), time.monotonic()

    async def times_out() -> None:
        async with asyncio.timeout(A_WEEK_SEC - 1):
            await asyncio.Event().wait()

    sleeping = asyncio.create_task(asyncio.sleep(A_WEEK_SEC - 1))
    timing_out = asyncio.create_task(times_out())
    sleeping_on = asyncio.create_task(asyncio.sleep(2 * A_WEEK_SEC))
    await asyncio.sleep(0)
    await loop.advance_async(A_WEEK_SEC)
    assert sleeping.done()
    assert isinstance(timing_out.exception(), TimeoutError)
    assert not sleeping_on.done()
    sleeping_on.cancel()
    assert time.monotonic() - began_sec < PATIENCE_SEC


def test_advance_from_another_thread_moves_all_clocks() -> None:
    with running_loop() as loop:
        clocks = loop.clocks
        readings = (clocks.now_ms, clocks.steady_ms, clocks.boot_ms, clocks.steady_clock())
        before_ms = [one() for one in readings]
        before_sec = clocks.steady_sec(), loop.time()
        ended = threading.Event()
        loop.call_soon_threadsafe(loop.call_later, AN_HOUR_SEC, ended.set)
        loop.advance(AN_HOUR_SEC + 1)
        assert ended.is_set()
        for reading, before in zip(readings, before_ms, strict=True):
            assert 3601_000 <= reading() - before < 3601_000 + PATIENCE_SEC * 1000
        for now, was in zip((clocks.steady_sec(), loop.time()), before_sec, strict=True):
            assert AN_HOUR_SEC + 1 <= now - was < AN_HOUR_SEC + 1 + PATIENCE_SEC


def test_advances_of_two_threads_add_up() -> None:
    with running_loop() as loop:
        threads = [threading.Thread(target=loop.advance, args=(100,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SEC)
        assert loop.offset_sec == pytest.approx(500)


@on_movable_loop
async def test_walk_waits_for_work_in_threads() -> None:
    """Its result must not seem to have taken an hour."""
    loop = movable()
    may_end = threading.Event()

    async def work() -> float:
        began_sec = loop.time()
        await asyncio.to_thread(may_end.wait, PATIENCE_SEC)
        return loop.time() - began_sec

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    walking = asyncio.create_task(loop.advance_async(AN_HOUR_SEC))
    loop.call_later(0.01, may_end.set)
    await walking
    assert working.done()
    assert await working < AN_HOUR_SEC


@on_movable_loop
async def test_busy_clients_do_not_hold_the_clock_up() -> None:
    loop = movable()
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)

        async def echo(end: socket.socket) -> None:
            while True:
                await loop.sock_sendall(end, await loop.sock_recv(end, 1))

        talking = [asyncio.create_task(echo(end)) for end in (here, there)]
        await loop.sock_sendall(here, b"x")
        await asyncio.sleep(0)
        await loop.advance_async(1)
        for task in talking:
            assert not task.done()
            task.cancel()
        await asyncio.wait(talking)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e12])
def test_illegal_duration_is_named(seconds: float) -> None:
    with running_loop() as loop:
        with pytest.raises(ValueError, match=r"seconds=\S+ is not legal: a clock moves forward, by 0 to \d+"):
            loop.advance(seconds)
        assert loop.offset_sec == 0


@on_movable_loop
async def test_advance_in_the_loops_own_thread_is_refused() -> None:
    loop = movable()
    with pytest.raises(RuntimeError, match="use `await advance_async"):
        loop.advance(1)
    with pytest.raises(RuntimeError, match="use `await advance_async"):
        await asyncio.to_thread(loop.advance, 1)
    assert loop.offset_sec == 0


def test_advance_of_a_loop_that_does_not_run_moves_it() -> None:
    loop = MovableLoop()
    ran: list[str] = []
    loop.call_later(AN_HOUR_SEC, ran.append, "due")
    loop.advance(AN_HOUR_SEC)
    assert ran == []
    loop.run_until_complete(asyncio.sleep(0))
    assert ran == ["due"]
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.advance(1)
