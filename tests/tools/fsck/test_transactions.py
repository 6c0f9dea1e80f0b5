"""Findings of a check in the transactions of partitions: what contradicts itself, and what nothing will end."""

import uuid
from dataclasses import replace

import pytest

from kafscale.formats.journal_entry import decode_cell, head_bytes
from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.formats.partition_record import PartitionRecord, ProducerRecord
from kafscale.formats.partition_transactions import (
    AbortedTransaction,
    BatchKind,
    OpenTransaction,
    PartitionTransactions,
)
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.formats.transaction_record import (
    TransactionRecord,
    TransactionState,
    TransactionTopic,
    encode_transaction_record,
)
from kafscale.log.reading.segment_inspection import SegmentInspection
from kafscale.metadata import keys
from kafscale.tools.fsck.check import check_cluster
from kafscale.tools.fsck.findings import Finding, FindingKind
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.record_transactions import transaction_problems
from kafscale.tools.fsck.slice_check import _problem
from kafscale.tools.fsck.transaction_check import LONGEST_MS
from tests.tools.fsck.two_stores import NAMESPACE, NOW_MS, Nobody, TwoStores
from tests.tools.journal_objects import entry_of, slice_of
from tests.tools.recovery.recovery_bucket import batch, marker

LONG_AGO_MS = NOW_MS - 2 * LONGEST_MS


async def with_open_transaction(last_write_ms: int = LONG_AGO_MS) -> TwoStores:
    """A topic `t` with an open transaction of producer 7 from offset 1 on."""
    stores = await TwoStores.new()
    await stores.create_topic("t")
    await stores.append(3)
    record = await stores.record()
    producer = ProducerRecord(
        producer_id=7, producer_epoch=2, last_timestamp_ms=last_write_ms, batches=(ProducerBatch(0, 1, 1),)
    )
    transactions = PartitionTransactions(open=(OpenTransaction(7, 2, 1),))
    await stores.save("t", 0, replace(record, producers=(producer,), transactions=transactions))
    return stores


async def hanging(stores: TwoStores) -> list[Finding]:
    reading = Reading(stores.metadata, stores.objects, NAMESPACE, 4)
    report = await check_cluster(reading, Nobody(), now_ms=lambda: NOW_MS)
    return [one for one in report.findings if one.kind is FindingKind.TRANSACTION_HANGING]


def ongoing(**changes: object) -> bytes:
    record = TransactionRecord(
        producer_id=7,
        producer_epoch=2,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        started_ms=LONG_AGO_MS,
        updated_ms=LONG_AGO_MS,
        topics=(TransactionTopic("t", uuid.UUID(int=1), (0,)),),
    )
    return encode_transaction_record(replace(record, **changes))  # type: ignore[arg-type]


async def test_an_old_transaction_of_an_unknown_id_hangs() -> None:
    [finding] = await hanging(await with_open_transaction())
    assert (finding.subject, finding.first_offset, finding.last_offset) == ("t-0", 1, 2)
    assert "producer 7, epoch 2" in finding.detail
    assert "abort --topic t --partition 0 --start-offset 1" in finding.detail


async def test_a_young_transaction_does_not_hang() -> None:
    assert await hanging(await with_open_transaction(NOW_MS - LONGEST_MS)) == []


@pytest.mark.parametrize(
    ("changes", "hangs"),
    [
        ({}, False),
        ({"state": TransactionState.PREPARE_ABORT}, False),
        ({"state": TransactionState.COMPLETE_COMMIT, "topics": ()}, True),
        ({"topics": (TransactionTopic("t", uuid.UUID(int=1), (1,)),)}, True),
        ({"producer_id": 8}, True),
    ],
)
async def test_a_coordinator_that_knows_it_will_end_it(changes: dict[str, object], hangs: bool) -> None:
    stores = await with_open_transaction()
    await stores.put(keys.transaction("copier"), ongoing(**changes))
    assert bool(await hanging(stores)) is hangs


async def test_a_marker_that_waits_will_end_it() -> None:
    stores = await with_open_transaction()
    waiting = MarkerRecord(
        transactional_id="",
        commit=False,
        producer_epoch=3,
        coordinator_epoch=0,
        transaction_version=1,
        decided_ms=NOW_MS,
    )
    await stores.put(keys.partition_marker("t", 0, 7), encode_marker_record(waiting))
    assert await hanging(stores) == []


async def test_a_record_that_cannot_be_read_is_named() -> None:
    stores = await with_open_transaction()
    await stores.put(keys.transaction("copier"), b"\x00\x01")
    reading = Reading(stores.metadata, stores.objects, NAMESPACE, 4)
    report = await check_cluster(reading, Nobody(), now_ms=lambda: NOW_MS)
    assert {one.kind for one in report.findings} == {
        FindingKind.TRANSACTION_HANGING,
        FindingKind.TRANSACTION_UNREADABLE,
    }


OPEN, LATER = OpenTransaction(7, 0, 1), OpenTransaction(8, 0, 5)
ABORTED = AbortedTransaction(7, 1, 3, 4)


@pytest.mark.parametrize(
    ("transactions", "problem"),
    [
        (PartitionTransactions((OPEN, LATER), (ABORTED,)), ""),
        (PartitionTransactions((LATER, OPEN)), "not in order"),
        (PartitionTransactions((OPEN, replace(OPEN, first_offset=2))), "two transactions of one producer"),
        (
            PartitionTransactions((replace(OPEN, first_offset=10),)),
            "open from offset 10 on; the log ends at 10",
        ),
        (PartitionTransactions((), (replace(ABORTED, last_offset=10),)), "to 10; the log ends at 10"),
        (PartitionTransactions((), (replace(ABORTED, first_offset=3),)), "from offset 3 to 3"),
        (PartitionTransactions((), (), 11), "below 11"),
    ],
)
def test_transactions_that_cannot_be_are_told(transactions: PartitionTransactions, problem: str) -> None:
    found = transaction_problems(
        PartitionRecord(leader_epoch=0, log_end_offset=10, transactions=transactions)
    )
    assert bool(found) == bool(problem)
    assert problem in "".join(found)


def test_a_slice_with_markers_is_held_against_its_row() -> None:
    one = slice_of(
        "t",
        0,
        batch(0, 2, 0, producer=(7, 1, 0), is_transactional=True),
        marker(2, 0, (7, 1), commits=True),
        batch(3, 1, 0, producer=(9, 0, 0)),
    )
    assert _problem("key", one.row, memoryview(one.data)) is None
    producers = list(one.row.producers)
    producers[1] = replace(producers[1], kind=BatchKind.ABORT)
    found = _problem("key", one.row._replace(producers=tuple(producers)), memoryview(one.data))
    assert found is not None and found.kind is FindingKind.SLICE_DIFFERS
    # As it is stored: the row tells the kinds.
    entry = entry_of(0, [one])
    head = decode_cell("entry", entry[: head_bytes("entry", entry)])
    assert head.slices[0].producers == one.row.producers  # type: ignore[union-attr]
    inspection = SegmentInspection("key", None, len(one.data))
    inspection.feed(one.data)
    assert [(event.kind, event.offset) for event in inspection.finish().transactions] == [
        (BatchKind.TRANSACTIONAL, 0),
        (BatchKind.COMMIT, 2),
    ]
