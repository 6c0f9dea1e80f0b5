"""Holds of topics when the metadata store does not say the outcome of a request."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from kafscale.cluster import export_hold
from kafscale.cluster.export_hold import ExportHold
from kafscale.cluster.exports import ExportLeaseLostError, read_exports, read_holder
from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.export_records import ExportProgress
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, Operation, TransactionResult

PROGRESS = ExportProgress(
    topic="events",
    table="db.events",
    positions={0: 10},
    log_end_offsets={0: 12},
    rows=10,
    dead_letters=0,
    updated_ms=5,
)

Request = tuple[Sequence[Compare], Sequence[Operation]]


class DoubtfulStore(MemoryStore):
    """Does not say the outcome of its next transactions: True in `doubts` does one all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.doubts: list[bool] = []
        self.on_the_way: list[Request] = []

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if not self.doubts:
            return await super().transact(compares, operations)
        if self.doubts.pop(0):
            await super().transact(compares, operations)
        else:
            self.on_the_way.append((compares, operations))
        raise StoreIndeterminateError("no answer in time")

    async def deliver(self) -> list[TransactionResult]:
        """The write that was in flight arrives now."""
        return [await super(DoubtfulStore, self).transact(*request) for request in self.on_the_way]


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DoubtfulStore]:
    monkeypatch.setattr(export_hold, "RETRY_DELAY_SEC", 0)
    doubtful = DoubtfulStore()
    yield doubtful
    await doubtful.close()


async def hold(store: MemoryStore) -> ExportHold:
    return await ExportHold.acquire(store, "events", "host/1", 60, now_ms=lambda: 5)


async def rows(store: MemoryStore) -> int:
    (exports,) = await read_exports(store)
    return exports.progress[0].rows


@pytest.mark.parametrize("doubts", [[True], [False], [False, False, True], [False, True]])
async def test_an_acquisition_of_unknown_outcome_is_found_out(
    store: DoubtfulStore, doubts: list[bool]
) -> None:
    store.doubts = doubts
    held = await hold(store)
    assert held.epoch == 1
    await held.confirm()
    assert not any(result.succeeded for result in await store.deliver())
    await held.record(PROGRESS)
    await held.release()
    assert await read_holder(store, "events") is None


async def test_an_acquisition_that_is_given_up_holds_nothing(
    store: DoubtfulStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_hold, "PATIENCE_SEC", 0)
    store.doubts = [True]
    with pytest.raises(StoreIndeterminateError):
        await hold(store)
    assert await store.get(keys.export_holder("events")) is None
    assert (await hold(store)).epoch == 2


@pytest.mark.parametrize("doubts", [[True], [False], [False, False, True], [True, False]])
async def test_progress_of_unknown_outcome_is_written_once_and_stays(
    store: DoubtfulStore, doubts: list[bool]
) -> None:
    held = await hold(store)
    await held.record(PROGRESS)
    store.doubts = doubts
    await held.record(replace(PROGRESS, rows=20))
    assert await rows(store) == 20
    await held.record(replace(PROGRESS, rows=30))
    # What was on the way all the time must not land behind what came after it.
    assert not any(result.succeeded for result in await store.deliver())
    assert await rows(store) == 30


async def test_progress_in_flight_is_not_written_after_the_loss(store: DoubtfulStore) -> None:
    held = await hold(store)
    store.doubts = [False]
    found = await store.get(keys.export_holder("events"))
    assert found is not None
    await store.revoke_lease(found.lease)
    with pytest.raises(ExportLeaseLostError):
        await held.record(PROGRESS)
    await (await hold(store)).record(replace(PROGRESS, rows=1))
    assert not any(result.succeeded for result in await store.deliver())
    assert await rows(store) == 1


async def test_two_records_at_once_come_one_after_the_other(store: DoubtfulStore) -> None:
    held = await hold(store)
    await asyncio.gather(*(held.record(replace(PROGRESS, rows=count)) for count in range(5)))
    assert await rows(store) == 4


async def test_a_store_that_is_away_is_said_to_be(store: DoubtfulStore) -> None:
    held = await hold(store)
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await held.record(PROGRESS)
    held.check()
    with pytest.raises(StoreUnavailableError):
        await hold(store)
