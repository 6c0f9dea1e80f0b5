"""A record, and what the leader's journal has behind it, make a partition's state."""

import uuid
from dataclasses import replace

import pytest

from kafscale.errors import CorruptDataError
from kafscale.formats.journal_entry import SliceKind, SliceProducer
from kafscale.formats.journal_keys import entry_key
from kafscale.formats.partition_record import JournalPosition, PartitionRecord, ProducerRecord
from kafscale.formats.partition_transactions import AbortedTransaction, BatchKind, OpenTransaction
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.journal.partition_state import partition_state
from tests.journal.test_replay import HEAD_BYTES, A, one, replay

RECORD = PartitionRecord(leader_epoch=1, journal=JournalPosition(journal_id="1-a", sequence=-1, topic_id=A))


def test_a_released_record_is_the_state() -> None:
    released = replace(RECORD, journal=None)
    assert partition_state(released, None, "default", 0) is released


def test_slices_behind_the_position_become_references() -> None:
    state = partition_state(RECORD, replay((one(A, 0, 4),), (one(A, 5, 5),)), "default", 0)
    assert state.log_end_offset == 6
    assert [(each.base_offset, each.last_offset) for each in state.segments] == [(0, 4), (5, 5)]
    assert state.segments[1].object_key == entry_key("default", "1-a", 1)
    assert state.segments[1].start == HEAD_BYTES
    assert state.journal == JournalPosition(journal_id="1-a", sequence=1, topic_id=A)


def test_slices_of_others_change_nothing() -> None:
    other = one(uuid.UUID(int=9), 0, 0)
    assert partition_state(RECORD, replay((other,)), "default", 0) == RECORD


def test_a_gap_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="begins at offset 3"):
        partition_state(RECORD, replay((one(A, 3, 4),)), "default", 0)


def test_a_replay_that_begins_too_late_is_refused() -> None:
    late = replay((one(A, 0, 0),))
    late.first = 1
    with pytest.raises(ValueError, match="from entry 0 on"):
        partition_state(RECORD, late, "default", 0)


def test_producers_go_on_from_what_the_record_has() -> None:
    known = ProducerRecord(
        producer_id=7, producer_epoch=0, last_timestamp_ms=5, batches=(ProducerBatch(0, 1, 0),)
    )
    record = replace(RECORD, producers=(known,))
    same = SliceProducer(producer_id=7, producer_epoch=0, batch=ProducerBatch(2, 2, 0))
    newer = SliceProducer(producer_id=7, producer_epoch=1, batch=ProducerBatch(0, 0, 1))
    entry = one(A, 0, 0)._replace(producers=(same,))
    state = partition_state(record, replay((entry,)), "default", 0)
    assert state.producers[0].batches == (ProducerBatch(0, 1, 0), ProducerBatch(2, 2, 0))
    bumped = one(A, 1, 1)._replace(producers=(newer,))
    state = partition_state(record, replay((entry,), (bumped,)), "default", 0)
    assert (state.producers[0].producer_epoch, state.producers[0].batches) == (1, (ProducerBatch(0, 0, 1),))


def test_transactions_go_on_from_what_the_record_has() -> None:
    """Rows say which batch is of a transaction, and which ends it. A marker of the same epoch keeps the batches."""
    data = SliceProducer(
        producer_id=7, producer_epoch=0, batch=ProducerBatch(0, 1, 0), kind=BatchKind.TRANSACTIONAL
    )
    abort = SliceProducer(
        producer_id=7, producer_epoch=0, batch=ProducerBatch(-1, -1, 2), kind=BatchKind.ABORT
    )
    first = one(A, 0, 1)._replace(producers=(data,), kind=SliceKind.TRANSACTIONS)
    second = one(A, 2, 2)._replace(producers=(abort,), kind=SliceKind.TRANSACTIONS)
    state = partition_state(RECORD, replay((first,)), "default", 0)
    assert state.transactions.open == (OpenTransaction(7, 0, 0),)
    assert state.last_stable_offset == 0
    state = partition_state(RECORD, replay((first,), (second,)), "default", 0)
    assert state.transactions.aborted == (AbortedTransaction(7, 0, 2, 3),)
    assert state.last_stable_offset == 3
    assert state.producers[0].batches == (ProducerBatch(0, 1, 0),)


def test_a_marker_of_a_new_epoch_begins_a_run() -> None:
    data = SliceProducer(
        producer_id=7, producer_epoch=0, batch=ProducerBatch(0, 1, 0), kind=BatchKind.TRANSACTIONAL
    )
    commit = SliceProducer(
        producer_id=7, producer_epoch=1, batch=ProducerBatch(-1, -1, 2), kind=BatchKind.COMMIT
    )
    entry = one(A, 0, 2)._replace(producers=(data, commit), kind=SliceKind.TRANSACTIONS)
    producer = partition_state(RECORD, replay((entry,)), "default", 0).producers[0]
    assert (producer.producer_epoch, producer.batches) == (1, (ProducerBatch(-1, -1, 2),))
