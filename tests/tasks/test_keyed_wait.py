"""Callbacks that wait for one outcome by key."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafscale.tasks.keyed_wait import KeyedWait
from tests.support.virtual_time import run_virtually


class Waits:
    """Each wait takes a second and returns its number; `called`: callback, outcome and time in seconds."""

    def __init__(self, *, joins: bool) -> None:
        self.waits: KeyedWait[str, int] = KeyedWait("test", self._wait, -1, joins=joins)
        self.count = 0
        self.called: list[tuple[str, int, float]] = []

    async def _wait(self, key: str) -> int:
        self.count += 1
        number = self.count
        await asyncio.sleep(1)
        if key == "broken":
            raise RuntimeError(key)
        return number

    def add(self, key: str, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.waits.add(key, lambda outcome: self.called.append((name, outcome, loop.time())))


def play(scenario: Callable[[Waits], Awaitable[None]], *, joins: bool) -> Waits:
    async def run() -> Waits:
        waits = Waits(joins=joins)
        await scenario(waits)
        return waits

    return run_virtually(run())


async def one_after_the_other(waits: Waits) -> None:
    waits.add("a", "first")
    await asyncio.sleep(0.5)
    waits.add("a", "second")
    waits.add("b", "another")
    await asyncio.sleep(5)


def test_joining_callbacks_share_the_wait_in_progress() -> None:
    waits = play(one_after_the_other, joins=True)
    assert waits.called == [("first", 1, 1.0), ("second", 1, 1.0), ("another", 2, 1.5)]


def test_others_get_the_outcome_of_a_wait_that_began_later() -> None:
    waits = play(one_after_the_other, joins=False)
    assert waits.called == [("first", 1, 1.0), ("another", 2, 1.5), ("second", 3, 2.0)]


@pytest.mark.parametrize("joins", [True, False])
def test_closing_calls_every_callback(joins: bool) -> None:
    async def scenario(waits: Waits) -> None:
        waits.add("a", "first")
        await asyncio.sleep(0.5)
        waits.add("a", "second")
        await waits.waits.close()
        await waits.waits.close()

    assert play(scenario, joins=joins).called == [("first", -1, 0.5), ("second", -1, 0.5)]


@pytest.mark.parametrize("joins", [True, False])
def test_closing_calls_callbacks_whose_wait_has_not_begun(joins: bool) -> None:
    async def scenario(waits: Waits) -> None:
        waits.add("a", "first")
        await waits.waits.close()

    assert play(scenario, joins=joins).called == [("first", -1, 0.0)]


@pytest.mark.parametrize("joins", [True, False])
def test_callback_added_by_a_callback_waits_again(joins: bool) -> None:
    async def scenario(waits: Waits) -> None:
        waits.waits.add("a", lambda _: waits.add("a", "again"))
        await asyncio.sleep(5)

    assert play(scenario, joins=joins).called == [("again", 2, 2.0)]


@pytest.mark.parametrize("joins", [True, False])
def test_callback_that_raises_leaves_no_other_uncalled(joins: bool) -> None:
    def fail(outcome: int) -> None:
        raise RuntimeError("a defect")

    async def scenario(waits: Waits) -> None:
        for _ in range(2):
            waits.waits.add("a", fail)
            waits.add("a", "other")
            await asyncio.sleep(5)
        waits.waits.add("a", fail)
        waits.add("a", "last")
        await waits.waits.close()

    called = play(scenario, joins=joins).called
    assert [name for name, _, _ in called] == ["other", "other", "last"]
    assert -1 not in [outcome for name, outcome, _ in called if name == "other"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_wait_that_raises_calls_back_all_the_same() -> None:
    async def scenario(waits: Waits) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        waits.add("broken", "first")
        await asyncio.sleep(5)
        waits.add("broken", "second")
        await asyncio.sleep(5)

    assert [called[:2] for called in play(scenario, joins=False).called] == [("first", -1), ("second", -1)]
