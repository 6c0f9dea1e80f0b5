"""Many calls at once, but only so many."""

import asyncio

import pytest

from kafscale.tasks.bounded import map_bounded


async def test_results_are_in_order_and_few_calls_in_progress() -> None:
    running: set[int] = set()
    most = 0

    async def double(number: int) -> int:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        for _ in range(10 - number):  # the later ones are done first
            await asyncio.sleep(0)
        running.remove(number)
        return 2 * number

    assert await map_bounded(double, range(10), 3) == list(range(0, 20, 2))
    assert most == 3


@pytest.mark.parametrize(("count", "limit"), [(0, 8), (1, 8), (2, 8), (8, 8), (9, 8), (5, 1)])
async def test_no_more_tasks_than_items(count: int, limit: int) -> None:
    """An idle broker looks again and again whether there is something to do."""
    made = 0
    loop = asyncio.get_running_loop()

    def make(loop: asyncio.AbstractEventLoop, coroutine: object, **options: object) -> asyncio.Task[object]:
        nonlocal made
        made += 1
        return asyncio.Task(coroutine, loop=loop, **options)  # type: ignore[arg-type]

    async def same(number: int) -> int:
        return number

    loop.set_task_factory(make)  # type: ignore[arg-type]
    try:
        assert await map_bounded(same, iter(range(count)), limit) == list(range(count))
    finally:
        loop.set_task_factory(None)
    assert made == min(count, limit)


async def test_others_have_their_turn_when_there_is_nothing_to_do() -> None:
    asked = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(asked.set_result, None)

    async def never(_: object) -> None:
        raise AssertionError

    assert await map_bounded(never, (), 4) == []
    assert asked.done()


async def test_the_first_error_ends_the_other_calls() -> None:
    ended: list[int] = []

    async def call(number: int) -> None:
        try:
            await asyncio.sleep(0)
            if number == 1:
                raise ValueError(number)
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="1"):
        await map_bounded(call, range(5), 3)
    assert sorted(ended) == [0, 1, 2]
