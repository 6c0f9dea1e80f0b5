"""One call for all who ask for the same thing at the same time."""

import asyncio

import pytest

from kafscale.cache.single_flight import SingleFlight
from tests.support.on_uvloop import on_uvloop
from tests.support.waiting import PATIENCE_SEC


class Call:
    """A call that ends when it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        self.count += 1
        return await asyncio.shield(self.outcome)


async def asking(flights: SingleFlight[str, str], key: str, call: Call) -> asyncio.Task[str]:
    task = asyncio.create_task(flights.run(key, call))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


@on_uvloop
async def test_concurrent_calls_for_a_key_are_one() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    call = Call()
    tasks = [await asking(flights, "key", call) for _ in range(5)]
    call.outcome.set_result("found")
    assert await asyncio.gather(*tasks) == ["found"] * 5
    assert call.count == 1


@on_uvloop
async def test_another_key_and_a_later_time_are_other_calls() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    call = Call()
    tasks = [await asking(flights, key, call) for key in ("one", "two")]
    call.outcome.set_result("found")
    await asyncio.gather(*tasks)
    assert await flights.run("one", call) == "found"
    assert call.count == 3


@on_uvloop
async def test_an_error_reaches_all_callers_and_is_not_kept() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    call, second = Call(), Call()
    tasks = [await asking(flights, "key", call) for _ in range(3)]
    call.outcome.set_exception(OSError("away"))
    for task in tasks:
        with pytest.raises(OSError, match="away"):
            await task
    second.outcome.set_result("back")
    assert await flights.run("key", second) == "back"


@on_uvloop
async def test_a_caller_that_is_cancelled_does_not_cancel_the_others() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    call = Call()
    first, second = [await asking(flights, "key", call) for _ in range(2)]
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    call.outcome.set_result("found")
    assert await second == "found"
    assert first.cancelled()


@on_uvloop
async def test_an_error_without_callers_is_not_raised() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    call = Call()
    task = await asking(flights, "key", call)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    call.outcome.set_exception(OSError("away"))
    await asyncio.sleep(0.001)  # `on_uvloop` fails the test for an exception that nobody retrieved


@on_uvloop
async def test_close_ends_calls_in_progress() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    call = Call()
    task = await asking(flights, "key", call)
    await flights.close()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


@on_uvloop
async def test_close_ends_what_has_not_begun_yet() -> None:
    flights: SingleFlight[str, str] = SingleFlight()
    call = Call()
    task = asyncio.create_task(flights.run("key", call))
    await asyncio.sleep(0)  # the caller has asked; the call itself is the next step
    await flights.close()
    await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), PATIENCE_SEC)
    assert task.cancelled()
    assert "key" not in flights


class Counted:
    """A value that counts its holders."""

    def __init__(self) -> None:
        self.holders = 1

    def hold(self) -> "Counted":
        assert self.holders > 0
        self.holders += 1
        return self

    def release(self) -> None:
        self.holders -= 1


@on_uvloop
async def test_each_caller_owns_a_share_and_the_calls_own_is_released() -> None:
    flights = SingleFlight[str, Counted](hand_out=Counted.hold, release=Counted.release)
    value, may_end = Counted(), asyncio.Event()

    async def call() -> Counted:
        await may_end.wait()
        return value

    tasks = [asyncio.create_task(flights.run("key", call)) for _ in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()  # before the value is there
    may_end.set()
    for _ in range(10):
        if value.holders == 1:
            await asyncio.sleep(0)
    tasks[1].cancel()  # after it was handed out, before it could be taken
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [True, True, False, False]
    assert value.holders == 2
