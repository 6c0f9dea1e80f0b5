"""A rebuild of logs with transactions: it knows what the lost record knew, and ends what nobody else would end."""

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.commands.recover_report import as_fields, as_text
from kafscale.errors import CorruptDataError
from kafscale.formats.aborted_transactions import AbortedTransactions
from kafscale.formats.checkpoint import Checkpoint, decode_checkpoint
from kafscale.formats.features import TRANSACTION_VERSION, decode_level
from kafscale.formats.marker_record import MarkerRecord, decode_marker_record, encode_marker_record
from kafscale.formats.partition_record import PartitionRecord, ProducerRecord
from kafscale.formats.partition_transactions import (
    AbortedTransaction,
    OpenTransaction,
    PartitionTransactions,
)
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, body_crc, encode_footer
from kafscale.formats.snapshot_file import SnapshotHeader
from kafscale.formats.topic_record import encode_topic_record
from kafscale.formats.transaction_record import (
    TransactionRecord,
    TransactionState,
    decode_transaction_record,
    encode_transaction_record,
)
from kafscale.log.partition_log import CHECKPOINT_ABORTED
from kafscale.log.producer_state import ProducerStates
from kafscale.log.reading.segment_inspection import InspectedSegment
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Put
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.protocol.record_batch import read_header, write_crc
from kafscale.tools.recovery.bucket_plan import BucketPlan, TopicPlan
from kafscale.tools.recovery.markers import NO_ID
from kafscale.tools.recovery.plan import (
    DamagedObject,
    FoundCheckpoint,
    PartitionContents,
    PartitionPlan,
    plan_partition,
)
from kafscale.tools.recovery.restored import with_snapshot
from kafscale.tools.recovery.snapshot_contents import read_contents
from kafscale.tools.recovery.write import RecoveryWriter
from kafscale.tools.recovery.write_markers import put_markers
from tests.log.transactional_log import NAMESPACE, NOW_MS, TOPIC, TransactionalLog, inspect
from tests.tools.recovery.recovery_bucket import Silence, memory_bucket

P, Q = 7, 8


def plan(
    segments: Sequence[InspectedSegment],
    *,
    aborted: Sequence[AbortedTransaction] = (),
    damaged: Sequence[DamagedObject] = (),
    partition: int = 0,
) -> PartitionPlan:
    checkpoint = FoundCheckpoint(
        key="c.ckpt", leader_epoch=3, checkpoint=Checkpoint(end_offset=0, aborted=tuple(aborted))
    )
    return plan_partition(
        PartitionContents(
            namespace=NAMESPACE,
            topic=TOPIC,
            partition=partition,
            segments=segments,
            damaged=damaged,
            checkpoint=checkpoint if aborted else None,
        )
    )


def newest(producers: Sequence[ProducerRecord]) -> dict[int, tuple[int, int] | None]:
    """Epoch and last sequence number of each."""
    states = ProducerStates(producers)
    return {one.producer_id: states.newest_sequence(one.producer_id) for one in producers}


STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([P, Q, 9]), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("end"), st.integers(0, 2), st.booleans(), st.booleans()),
    st.tuples(st.just("flush"), st.just(0), st.just(0), st.just(False)),
    st.tuples(st.just("merge"), st.integers(0, 5), st.integers(2, 4), st.just(False)),
)


@given(steps=st.lists(STEPS, max_size=40), piece_bytes=st.sampled_from([50, 333, 1 << 20]))
def test_rebuild_knows_the_transactions_of_the_lost_record(
    steps: list[tuple[str, int, int, bool]], piece_bytes: int
) -> None:
    led = TransactionalLog()
    for name, first, second, flag in steps:
        if name == "write":
            # As clients do: within a transaction everything is a part of it.
            led.write(first, second, is_transactional=flag or first in led.opened)
        elif name == "end" and first < len(led.opened):
            led.end(list(led.opened)[first], commits=bool(second), bumps=flag)
        elif name == "flush":
            led.flush()
        elif name == "merge":
            led.merge(first, second)
    led.flush()
    found = plan(led.inspected(piece_bytes))
    assert found.record.transactions == led.record.transactions
    assert found.record.log_end_offset == led.record.log_end_offset
    assert newest(found.record.producers) == newest(led.record.producers)
    assert not found.dropped


def test_a_rebuild_with_many_aborted_ones_writes_a_checkpoint() -> None:
    led = TransactionalLog()
    for number in range(CHECKPOINT_ABORTED + 1):
        led.write(P)
        led.end(P, commits=False, bumps=False)
        if number % 100 == 0:
            led.flush()
    led.write(Q)
    led.flush()
    found = plan(led.inspected())
    checkpoint = decode_checkpoint("c", found.checkpoint_data)
    assert checkpoint.aborted == led.record.transactions.aborted
    expected = PartitionTransactions(
        open=led.record.transactions.open, aborted_from=led.record.log_end_offset
    )
    assert found.record.transactions == expected
    # Both together are what the leader knew.
    known = AbortedTransactions(checkpoint.aborted)
    known.add_newer(found.record.transactions.aborted)
    assert tuple(known) == led.record.transactions.aborted


def test_checkpoints_name_aborted_ones_whose_marker_is_damaged() -> None:
    """Else what the producer committed behind the damage would bring the aborted records back."""
    led = TransactionalLog()
    led.write(P)
    led.flush()
    led.end(P, commits=False, bumps=False)
    led.flush()
    led.write(P)
    led.end(P, commits=True, bumps=False)
    led.flush()
    first, marker, last = led.inspected()
    aborted = led.record.transactions.aborted
    broken = DamagedObject(
        key=marker.key, base_offset=1, last_offset=1, is_merged=False, problem="a CRC is wrong"
    )
    found = plan([first, last], aborted=aborted, damaged=[broken])
    assert [
        (one.producer_id, one.first_offset, one.last_offset) for one in found.record.transactions.aborted
    ] == [(P, 0, 1)]
    assert not found.record.transactions.open


def test_aborted_ones_below_the_log_start_are_not_rebuilt() -> None:
    led = TransactionalLog()
    led.write(P)
    led.end(P, commits=False, bumps=False)
    led.flush()
    led.write(Q)
    led.end(Q, commits=False, bumps=False)
    led.flush()
    found = plan(led.inspected()[1:])
    assert found.record.log_start_offset == 2
    assert found.record.transactions.aborted == led.record.transactions.aborted[1:]


def topic_plan(*partitions: PartitionPlan) -> BucketPlan:
    return BucketPlan(
        namespace=NAMESPACE,
        cluster_id=None,
        topics=(TopicPlan(name=TOPIC, partitions=partitions),),
        is_narrowed=False,
        foreign_objects=0,
    )


async def markers_after(bucket_plan: BucketPlan, *, times: int = 2) -> dict[tuple[int, int], MarkerRecord]:
    """The markers that the rebuild leaves, by partition and producer, after it was carried out repeatedly."""
    metadata = MemoryStore()
    for number in range(times):
        writer = RecoveryWriter(
            metadata,
            memory_bucket(),
            bucket_plan,
            configs={},
            new_uuid=new_kafka_uuid,
            progress=Silence(),
            now_ms=lambda number=number: NOW_MS + number,  # type: ignore[misc]
        )
        await writer.write(skip_damaged=True)
    found = {}
    for item in (await metadata.range(keys.PARTITION_MARKERS)).items:
        topic, index, producer_id = keys.marked_partition(item.key)
        assert topic == TOPIC
        found[index, producer_id] = decode_marker_record(item.key, item.value)
    return found


def open_log(epoch: int = 0) -> TransactionalLog:
    """With a transaction of P that is open, in this epoch."""
    led = TransactionalLog()
    led.next[P] = epoch, 0
    led.write(P)
    led.flush()
    return led


async def test_open_transactions_get_markers_that_abort_them() -> None:
    led = open_log(epoch=4)
    led.write(Q)
    led.end(Q, commits=True, bumps=False)
    led.flush()
    markers = await markers_after(topic_plan(plan(led.inspected())))
    assert list(markers) == [(0, P)]
    marker = markers[0, P]
    assert (marker.commit, marker.producer_epoch, marker.transactional_id) == (False, 5, NO_ID)
    assert marker.decided_ms == NOW_MS, "the first one stays"
    assert marker.topic_id != uuid.UUID(int=0)


def test_the_plan_names_what_is_open() -> None:
    led = open_log(epoch=4)
    for producer_id in range(20, 32):
        led.write(producer_id)
    led.flush()
    found = topic_plan(plan(led.inspected()))
    shown = as_text(found, (), applying=False)
    assert "Open transactions, which --apply ends" in shown
    assert f"{TOPIC}-0: of producer {P}, epoch 4, from offset 0 on" in shown
    assert f"{TOPIC}-0: 3 more" in shown
    [partition] = as_fields(found, ())["topics"][0]["partitions"]
    assert partition["open_transactions"][0] == {"producer_id": P, "producer_epoch": 4, "first_offset": 0}
    assert "Open transactions" not in as_text(topic_plan(plan(())), (), applying=False)


async def test_a_marker_of_an_earlier_topic_is_replaced() -> None:
    """Where one topic's record was lost alone: the leader of the new one would take it for nothing."""
    metadata, topic_id = MemoryStore(), uuid.UUID(int=5)
    keys_of = [keys.partition_marker(TOPIC, 0, producer_id) for producer_id in (P, Q)]
    ours = {key: encode_marker_record(marker_of(False, 5)) for key in keys_of}
    other = encode_marker_record(marker_of(True, 5, uuid.UUID(int=6)))
    mine = encode_marker_record(marker_of(True, 7))
    await metadata.transact([], [Put(keys_of[0], other), Put(keys_of[1], mine)])
    for _ in range(2):
        await put_markers(metadata, TOPIC, topic_id, ours)
        found = {item.key: item.value for item in (await metadata.range(keys.PARTITION_MARKERS)).items}
        assert found == {keys_of[0]: ours[keys_of[0]], keys_of[1]: mine}


@pytest.mark.parametrize(
    ("has_snapshot", "has_transactions", "level"),
    [(False, False, 2), (False, True, 2), (True, False, None), (True, True, 2)],
)
async def test_transactions_are_on_where_they_were(
    has_snapshot: bool, has_transactions: bool, level: int | None
) -> None:
    """Without a snapshot the cluster begins as a new one does; a cluster of an older release stays as it was."""
    led = TransactionalLog()
    led.write(P, is_transactional=has_transactions)
    led.flush()
    found = topic_plan(plan(led.inspected()))
    metadata = MemoryStore()
    writer = RecoveryWriter(
        metadata,
        memory_bucket(),
        with_entries(found, {}) if has_snapshot else found,
        configs={},
        new_uuid=new_kafka_uuid,
        progress=Silence(),
    )
    await writer.write(skip_damaged=False)
    key = keys.feature(TRANSACTION_VERSION)
    held = await metadata.get(key)
    assert (None if held is None else decode_level(key, held.value)) == level


async def test_the_last_epoch_is_not_exceeded() -> None:
    markers = await markers_after(topic_plan(plan(open_log(epoch=2**15 - 1).inspected())))
    assert markers[0, P].producer_epoch == 2**15 - 1


async def test_a_decision_that_another_log_has_is_carried_out() -> None:
    """With TV2 each end is a new epoch: the marker of one partition tells what the other lacks."""
    here, there = open_log(epoch=4), open_log(epoch=4)
    there.end(P, commits=True, bumps=True)
    there.flush()
    both = topic_plan(plan(here.inspected()), plan(there.inspected(), partition=1))
    assert {
        place: (one.commit, one.producer_epoch) for place, one in (await markers_after(both)).items()
    } == {(0, P): (True, 5)}


async def test_a_marker_of_the_same_epoch_decides_nothing() -> None:
    """With TV1 it may be that of an earlier transaction."""
    here, there = open_log(epoch=4), open_log(epoch=4)
    there.end(P, commits=True, bumps=False)
    there.flush()
    markers = await markers_after(topic_plan(plan(here.inspected()), plan(there.inspected(), partition=1)))
    assert [(one.commit, one.producer_epoch) for one in markers.values()] == [(False, 5)]


async def test_where_records_are_lost_nothing_is_committed() -> None:
    """The marker of this transaction may be among them, and the one that was found that of a later one."""
    here, there = open_log(epoch=4), open_log(epoch=4)
    there.end(P, commits=True, bumps=True)
    there.flush()
    broken = DamagedObject(key="x", base_offset=1, last_offset=1, is_merged=False, problem="a CRC is wrong")
    damaged = plan(here.inspected(), damaged=[broken])
    markers = await markers_after(topic_plan(damaged, plan(there.inspected(), partition=1)))
    assert [one.commit for one in markers.values()] == [False]


# --- with a snapshot of the metadata store

TOPIC_ID = uuid.UUID(int=5)


def marker_of(commit: bool, epoch: int, topic_id: uuid.UUID = TOPIC_ID) -> MarkerRecord:
    return MarkerRecord(
        transactional_id="copier",
        commit=commit,
        producer_epoch=epoch,
        coordinator_epoch=0,
        transaction_version=2,
        decided_ms=NOW_MS - 1,
        topic_id=topic_id,
    )


def with_entries(bucket_plan: BucketPlan, entries: dict[str, bytes]) -> BucketPlan:
    count = len(bucket_plan.topics[0].partitions)
    topic = TopicRecord(name=TOPIC, topic_id=TOPIC_ID, partition_count=count, configs={})
    entries = {keys.topic(TOPIC): encode_topic_record(topic), **entries}
    header = SnapshotHeader(cluster_id="c", namespace=NAMESPACE, revision=9, created_ms=0, keys=len(entries))
    contents = read_contents("s.kfsnap", header, entries)
    assert not contents.unknown
    return with_snapshot(bucket_plan, contents, NOW_MS)


async def test_a_marker_of_a_snapshot_decides_if_it_is_newer() -> None:
    key = keys.partition_marker(TOPIC, 0, P)
    found = topic_plan(plan(open_log(epoch=4).inspected()))
    decided = with_entries(found, {key: encode_marker_record(marker_of(True, 5))})
    assert await markers_after(decided) == {(0, P): marker_of(True, 5)}
    # By the old protocol it may be that of a transaction before.
    for other in (marker_of(True, 4), marker_of(True, 5, uuid.UUID(int=6))):
        markers = await markers_after(with_entries(found, {key: encode_marker_record(other)}))
        assert [one.commit for one in markers.values()] == [False]
    # Nothing is open: it was written since.
    done = topic_plan(plan(TransactionalLog().inspected()))
    assert await markers_after(with_entries(done, {key: encode_marker_record(marker_of(True, 5))})) == {}


def test_transactional_ids_come_back_without_their_epochs() -> None:
    ongoing = TransactionRecord(
        producer_id=P,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        started_ms=1,
        updated_ms=1,
        groups=("billing",),
    )
    key = keys.transaction("copier")
    restored = with_entries(topic_plan(), {key: encode_transaction_record(ongoing)}).restored
    assert restored is not None
    record = decode_transaction_record(key, restored.entries[key])
    assert (record.state, record.producer_id, record.timeout_ms, record.groups) == (
        TransactionState.EMPTY,
        P,
        60_000,
        (),
    )
    # The next InitProducerId is to get another producer id: the epochs of this one may all have been given out.
    assert record.producer_epoch == 2**15 - 2
    assert restored.count(keys.TRANSACTIONS) == 1


def test_only_committed_offsets_of_transactions_come_back() -> None:
    entries = {}
    for group, commit in (("committed", True), ("aborted", False), ("open", None)):
        entries[keys.pending_offsets(group, P)] = group.encode()
        if commit is not None:
            entries[keys.group_marker(group, P)] = encode_marker_record(marker_of(commit, 5))
    restored = with_entries(topic_plan(), entries).restored
    assert restored is not None
    kept = {key for key in restored.entries if key.startswith((keys.GROUP_MARKERS, keys.PENDING_OFFSETS))}
    assert kept == {keys.pending_offsets("committed", P), keys.group_marker("committed", P)}


# --- the record of a producer whose checkpoint has what its record lacks


def test_a_marker_behind_a_checkpoint_keeps_the_sequence() -> None:
    """With TV1 the epoch stays, and sequence numbers go on behind the marker."""
    led = TransactionalLog()
    led.write(P, 5)
    led.flush()
    before = led.record.producers
    led.end(P, commits=True, bumps=False)
    led.flush()
    (one,) = before
    # As a reader of the journal sees it, whose record lacks the producer: the checkpoint has it.
    marker = replace(
        one, batches=(replace(one.batches[0], first_sequence=-1, last_sequence=-1, base_offset=5),)
    )
    states = ProducerStates((*before, marker))
    assert states.newest_sequence(P) == (0, 4)


def test_an_open_transaction_may_lie_below_the_log_start() -> None:
    """As in Kafka: the log start is the last stable offset then, until the marker comes."""
    transactions = PartitionTransactions(open=(OpenTransaction(P, 0, 3),))
    record = PartitionRecord(leader_epoch=1, log_start_offset=5, log_end_offset=9, transactions=transactions)
    assert record.last_stable_offset == 5


def test_a_control_batch_that_cannot_be_read_is_damage() -> None:
    led = TransactionalLog()
    led.write(P)
    led.end(P, commits=True, bumps=False)
    led.flush()
    data = bytearray(led.segments[0])
    first = read_header(data, HEADER_SIZE)
    position = HEADER_SIZE + first.size_bytes
    place = data.index(b"\x00\x00\x00\x01", position + BATCH_HEADER_SIZE)
    data[place + 3] = 9
    write_crc(data, position)
    body = bytes(data[HEADER_SIZE:-FOOTER_SIZE])
    data[-FOOTER_SIZE:] = encode_footer(body_crc=body_crc([body]), last_offset=1)
    with pytest.raises(CorruptDataError, match=r"segment-.*type 9"):
        inspect(bytes(data), 1 << 20)
