"""Background tasks with an owner: found by key, logged when they fail, and ended together."""

import asyncio

import pytest

from kafscale.tasks.owner import TaskOwner


async def forever() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    raise ValueError("a defect")


async def test_task_is_found_by_its_key_until_it_ends() -> None:
    owner, may_end = TaskOwner(), asyncio.Event()

    async def work() -> None:
        await may_end.wait()

    owner.spawn(work(), "work", key="orders")
    assert ("orders" in owner, "other" in owner, len(owner)) == (True, False, 1)
    may_end.set()
    await owner.wait()
    assert ("orders" in owner, len(owner)) == (False, 0)


async def test_failed_task_is_logged_once_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    owner = TaskOwner()
    owner.spawn(failing(), "flush orders-0")
    await owner.wait()
    [line] = caplog.records
    assert (line.message, line.levelname) == ("a background task failed", "ERROR")
    assert line.__dict__["task"] == "flush orders-0"
    assert line.exc_info is not None and isinstance(line.exc_info[1], ValueError)


async def test_awaited_task_gives_its_exception_to_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    task = TaskOwner().spawn(failing(), "work", is_awaited=True)
    with pytest.raises(ValueError, match="a defect"):
        await task
    assert not caplog.records


async def test_close_cancels_and_awaits_every_task(caplog: pytest.LogCaptureFixture) -> None:
    owner, ended = TaskOwner(), []

    async def work() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    task = owner.spawn(work(), "work")
    owner.spawn(forever(), "never begun")
    await asyncio.sleep(0)
    await owner.close()
    assert (ended, task.cancelled(), len(owner)) == (["work"], True, 0)
    assert not caplog.records


async def test_close_ends_what_a_cancelled_task_spawns() -> None:
    owner = TaskOwner()

    async def work() -> None:
        try:
            await forever()
        finally:
            owner.spawn(forever(), "successor")

    owner.spawn(work(), "work")
    await asyncio.sleep(0)
    await owner.close()
    assert len(owner) == 0


async def test_close_by_an_owned_task_waits_for_the_others() -> None:
    owner = TaskOwner()
    other = owner.spawn(forever(), "other")
    await owner.spawn(owner.close(), "closing")
    assert other.cancelled()


async def test_wait_ends_with_its_time() -> None:
    owner = TaskOwner()
    owner.spawn(forever(), "work")
    await owner.wait(0.01)
    assert len(owner) == 1
    await owner.close()
