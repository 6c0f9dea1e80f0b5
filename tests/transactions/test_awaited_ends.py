"""A request waits for the end of the transaction before it, without asking the metadata store."""

import asyncio
from dataclasses import replace

from kafscale.formats.transaction_record import TransactionState
from kafscale.transactions.awaited_ends import AwaitedEnds
from kafscale.transactions.record_driver import StoredRecord
from tests.support.waiting import PATIENCE_SEC
from tests.transactions.values import EMPTY, ONGOING

ENDING = StoredRecord(replace(ONGOING, state=TransactionState.PREPARE_COMMIT), 5)
ENDED = StoredRecord(replace(EMPTY, state=TransactionState.COMPLETE_COMMIT), 7)


class Known:
    def __init__(self, **records: StoredRecord) -> None:
        self.records = records

    def __call__(self, transactional_id: str) -> StoredRecord | None:
        return self.records.get(transactional_id)


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_returns_when_the_transaction_is_complete() -> None:
    known = Known(a=ENDING, b=ENDING)
    ends = AwaitedEnds(known, PATIENCE_SEC)
    waiting = [asyncio.create_task(ends.ended(one, ends.deadline())) for one in ("a", "a", "b")]
    await _turns()
    ends.record_changed("a")  # Another record of the same transaction: it is not complete yet.
    await _turns()
    assert not any(task.done() for task in waiting)
    known.records["a"] = ENDED
    ends.record_changed("a")
    await asyncio.gather(*waiting[:2])
    assert not waiting[2].done()
    known.records.clear()  # Another broker coordinates it now.
    ends.record_changed("b")
    await waiting[2]


async def test_it_returns_at_the_deadline() -> None:
    ends = AwaitedEnds(Known(a=ENDING), 0.01)
    await ends.ended("a", ends.deadline())
    assert ends.is_ending("a")


async def test_what_is_not_ending_does_not_wait() -> None:
    ends = AwaitedEnds(Known(a=ENDED), PATIENCE_SEC)
    for transactional_id in ("a", "unknown"):
        await ends.ended(transactional_id, ends.deadline())
