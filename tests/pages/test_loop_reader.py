"""Reading from the event loop in another thread: deadlines, errors, and how much of the loop pages take."""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from kafscale.pages.loop_reader import LoopNotAnsweringError, LoopReader
from tests.support.waiting import PATIENCE_SEC, wait_until


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_function_runs_on_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    reader = LoopReader(loop, PATIENCE_SEC)
    assert reader.read(asyncio.get_running_loop) is loop
    assert reader.read(threading.get_ident) != threading.get_ident()


def test_error_of_the_function_is_raised(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(ZeroDivisionError):
        LoopReader(loop, PATIENCE_SEC).read(lambda: 1 // 0)
    assert LoopReader(loop, PATIENCE_SEC).read(lambda: 1) == 1


def test_timeout_inside_the_function_is_no_hung_loop(loop: asyncio.AbstractEventLoop) -> None:
    reader = LoopReader(loop, PATIENCE_SEC)

    def time_out() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        reader.read(time_out)
    assert reader.read(lambda: 1) == 1


def test_hung_loop_ends_the_wait_and_runs_nothing_later(loop: asyncio.AbstractEventLoop) -> None:
    release, ran = threading.Event(), threading.Event()
    loop.call_soon_threadsafe(release.wait, PATIENCE_SEC)
    reader = LoopReader(loop, 0.05)
    with pytest.raises(LoopNotAnsweringError, match=r"has not answered for 0\.05 s"):
        reader.read(ran.set)
    release.set()
    assert LoopReader(loop, PATIENCE_SEC).read(lambda: "alive") == "alive"
    assert not ran.is_set()


def test_others_do_not_wait_for_a_loop_that_hangs(loop: asyncio.AbstractEventLoop) -> None:
    release, deadline_sec = threading.Event(), 1.0
    loop.call_soon_threadsafe(release.wait, PATIENCE_SEC)
    reader, found = LoopReader(loop, deadline_sec), []

    def read() -> None:
        try:
            reader.read(lambda: None)
        except LoopNotAnsweringError as problem:
            found.append(str(problem))

    began = time.monotonic()
    threads = [threading.Thread(target=read) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_sec = time.monotonic() - began
    release.set()
    assert found == ["the event loop has not answered for 1 s"] * 50
    assert took_sec < 25 * deadline_sec, "half of what each would wait by itself"


def test_close_ends_the_wait_at_once(loop: asyncio.AbstractEventLoop) -> None:
    release, found = threading.Event(), []
    loop.call_soon_threadsafe(release.wait, PATIENCE_SEC)
    reader = LoopReader(loop, PATIENCE_SEC)

    def read() -> None:
        with pytest.raises(LoopNotAnsweringError) as raised:
            reader.read(lambda: None)
        found.append(str(raised.value))

    thread = threading.Thread(target=read)
    thread.start()
    reader.close()
    thread.join()
    release.set()
    assert found == ["the broker is stopping"]


def test_closed_loop_is_reported() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(LoopNotAnsweringError, match="closed"):
        LoopReader(loop, PATIENCE_SEC).read(lambda: 1)


def test_many_readers_take_turns_with_rests(loop: asyncio.AbstractEventLoop) -> None:
    reader, busy_sec, times = LoopReader(loop, PATIENCE_SEC), 0.005, []

    def work() -> None:
        times.append(time.monotonic())
        end = time.monotonic() + busy_sec
        while time.monotonic() < end:
            pass

    threads = [threading.Thread(target=reader.read, args=(work,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(times) == 6, "all have run")
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    # A twentieth of the loop's time: 5 ms of work, then 95 ms of rest.
    assert min(gaps) >= busy_sec * 15
