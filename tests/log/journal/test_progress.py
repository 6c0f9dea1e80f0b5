"""The record of one's own journal: behind what is committed, seldom, and never again once it has ended."""

import asyncio
import random
from collections.abc import Sequence

from kafscale.errors import StoreIndeterminateError
from kafscale.formats.journal_record import JournalRecord, decode_journal_record, encode_journal_record
from kafscale.log.journal.progress import LEAST_INTERVAL_SEC, JournalProgress
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, Delete, Operation, Put, TransactionResult
from tests.support.watched_loop import in_virtual_time

KEY = keys.journal("1-a")


class ForgetfulStore(MemoryStore):
    """Loses the answers to the first transactions, which were carried out."""

    def __init__(self, lost: int = 0) -> None:
        super().__init__()
        self.transactions = 0
        self._lost = lost

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        self.transactions += 1
        result = await super().transact(compares, operations)
        if self.transactions <= self._lost:
            raise StoreIndeterminateError("the answer was lost")
        return result


class Scene:
    def __init__(self, store: ForgetfulStore) -> None:
        self.store = store
        self.ends: list[int | None] = []
        self.progress = JournalProgress(store, "1-a", 1, random.Random(1), self._ended)

    def _ended(self, place: int | None) -> None:
        self.ends.append(place)

    async def record(self) -> JournalRecord:
        found = await self.store.get(KEY)
        assert found is not None
        return decode_journal_record(KEY, found.value)


@in_virtual_time
async def test_progress_is_stored_once_an_interval_at_most() -> None:
    scene = Scene(ForgetfulStore())
    await scene.progress.begin()
    assert await scene.record() == JournalRecord(broker_id=1)
    for through in range(100):
        scene.progress.committed(through)
        await asyncio.sleep(LEAST_INTERVAL_SEC / 10)
    await asyncio.sleep(2 * LEAST_INTERVAL_SEC)
    assert await scene.record() == JournalRecord(broker_id=1, progress=99)
    assert scene.progress.reported == 99
    assert scene.store.transactions < 15
    await scene.progress.close()


@in_virtual_time
async def test_lost_answers_are_found_out() -> None:
    scene = Scene(ForgetfulStore(lost=3))
    await scene.progress.begin()
    scene.progress.committed(4)
    await asyncio.sleep(10)
    assert await scene.record() == JournalRecord(broker_id=1, progress=4)
    assert scene.ends == []
    await scene.progress.close()


@in_virtual_time
async def test_an_end_is_reported_once_and_stays() -> None:
    scene = Scene(ForgetfulStore())
    await scene.progress.begin()
    ended = JournalRecord(broker_id=1, progress=-1, ended_at=3)
    await scene.store.transact([], [Put(KEY, encode_journal_record(ended))])
    scene.progress.committed(2)
    await asyncio.sleep(10)
    assert await scene.record() == ended
    transactions = scene.store.transactions
    scene.progress.committed(5)
    await asyncio.sleep(10)
    assert (scene.ends, scene.store.transactions) == ([3], transactions)
    await scene.progress.close()


@in_virtual_time
async def test_a_record_that_is_gone_is_not_made_again() -> None:
    scene = Scene(ForgetfulStore())
    await scene.progress.begin()
    await scene.store.transact([], [Delete(KEY)])
    scene.progress.committed(2)
    await asyncio.sleep(10)
    assert await scene.store.get(KEY) is None
    assert scene.ends == [None]
    await scene.progress.close()
