"""The deadline of requests that wait for a store: what becomes of late answers, and of other errors."""

import asyncio

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.serving import store_deadline


async def test_a_late_answer_says_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_deadline, "STORE_DEADLINE_SEC", 0.01)
    with pytest.raises(StoreUnavailableError, match=r"within 0\.01 s"):
        async with store_deadline.store_deadline():
            await asyncio.Event().wait()


async def test_a_shorter_timeout_inside_says_the_same() -> None:
    with pytest.raises(StoreUnavailableError):
        async with store_deadline.store_deadline():
            async with asyncio.timeout(0):
                await asyncio.Event().wait()


async def test_other_errors_and_cancellation_pass() -> None:
    with pytest.raises(KeyError):
        async with store_deadline.store_deadline():
            raise KeyError("other")

    async def waits() -> None:
        async with store_deadline.store_deadline():
            await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
