"""A partition's transactions stay known while its segments are sealed, gathered, merged, deleted and rebuilt."""

from typing import Any

import pytest

from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT, Checkpoint, decode_checkpoint
from kafscale.formats.journal_keys import is_entry_key, parse_gathered_key
from kafscale.formats.marker_record import decode_marker_record
from kafscale.formats.partition_record import PartitionRecord
from kafscale.formats.partition_transactions import AbortedTransaction, PartitionTransactions
from kafscale.log.partition import Partition
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.tools.fsck.check import check_cluster
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.recovery.rebuild import plan_rebuild
from kafscale.tools.recovery.write import RecoveryWriter
from tests.log.compaction.logs_of_keys import headers_in
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.decided_transactions import NOW_MS, append, decide, until_decided
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.tools.fsck.two_stores import Nobody, problems
from tests.tools.recovery.recovery_bucket import Silence

TOPIC = "orders"
P, Q, R = 7, 8, 9
SETTINGS: dict[str, Any] = {
    "merge_min_segments": 4,
    "merge_check_interval_ms": 3_600_000,
    "seal_interval_ms": 3_600_000,
}
"""Everything happens when the test says so."""


class Writer:
    """Writes transactions of several producers."""

    def __init__(self, broker: InProcessBroker) -> None:
        self._broker = broker
        self._next: dict[int, int] = {}

    async def write(self, producer_id: int, *values: bytes) -> None:
        sequence = self._next.get(producer_id, 0)
        self._next[producer_id] = sequence + len(values)
        batch = wire.batch(
            list(values), producer_id=producer_id, producer_epoch=0, sequence=sequence, is_transactional=True
        )
        await append(self._broker, TOPIC, batch)

    async def end(self, producer_id: int, *, commits: bool) -> None:
        await decide(self._broker, TOPIC, producer_id, commits=commits)

    async def write_some(self) -> None:
        """Two aborted transactions and two committed ones, in each other, and one that stays open."""
        await self.write(P, b"a", b"b")
        await self.write(Q, b"c")
        await self.end(P, commits=False)
        await self.write(P, b"d")
        await self.write(R, b"open")
        await self.end(Q, commits=True)
        await self.end(P, commits=True)
        await self.write(Q, b"e")
        await self.end(Q, commits=False)


EXPECTED = PartitionTransactions(
    aborted=(AbortedTransaction(P, 0, 3, 2), AbortedTransaction(Q, 8, 9, 5)),
)
"""But for the open one, which begins at offset 5."""


async def read_all(client: Client, start: int = 0) -> bytes:
    """Every batch from the offset on, byte for byte."""
    found, offset = b"", start
    while True:
        part = (await client.fetch(TOPIC, {0: offset}))[0]
        assert part.error_code == 0, part
        fetched = bytes(part.records or b"")
        found += fetched
        if fetched:
            offset = headers_in(fetched)[-1].last_offset + 1
        if offset >= part.high_watermark:
            return found


async def checkpoint_of(broker: InProcessBroker, record: PartitionRecord) -> Checkpoint:
    if not record.checkpoint_key:
        return EMPTY_CHECKPOINT
    return decode_checkpoint(record.checkpoint_key, await broker.objects.inner.get(record.checkpoint_key))


async def check_known(broker: InProcessBroker, partition: Partition) -> None:
    """The leader, its record with the checkpoint, and a rebuild know the same transactions."""
    assert partition.aborted is not None
    assert tuple(partition.aborted) == EXPECTED.aborted
    record = partition.record
    assert [(one.producer_id, one.first_offset) for one in record.transactions.open] == [(R, 5)]
    assert record.last_stable_offset == 5
    checkpoint = await checkpoint_of(broker, record)
    newer = [one for one in record.transactions.aborted if one not in checkpoint.aborted]
    assert (*checkpoint.aborted, *newer) == EXPECTED.aborted
    plan = await plan_rebuild(broker.objects, "default", concurrency=4, progress=Silence())
    [found] = [one for topic in plan.topics for one in topic.partitions]
    assert found.record.transactions.open == record.transactions.open
    assert found.record.transactions.aborted == EXPECTED.aborted


async def gather(broker: InProcessBroker) -> None:
    """A round of sealing, where the slices are too few for a segment."""
    await broker.process.serving.segment_life.sealer.look()
    [reference] = broker.partition(TOPIC).record.segments
    assert parse_gathered_key(reference.object_key) is not None


async def seal(broker: InProcessBroker) -> None:
    await broker.seal(TOPIC)
    assert not any(is_entry_key(one.object_key) for one in broker.partition(TOPIC).record.segments)


async def test_transactions_outlive_every_swap_of_segments() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        partition = broker.partition(TOPIC)
        await Writer(broker).write_some()
        before = await read_all(client)
        assert len(headers_in(before)) == 9
        await check_known(broker, partition)
        for change in (gather, seal):
            await change(broker)
            broker.forget_cached(TOPIC)
            assert await read_all(client) == before
            await check_known(broker, partition)
        reading = Reading(broker.metadata, broker.objects, "default", 4)
        report = await check_cluster(reading, Nobody(), verify=True, now_ms=lambda: NOW_MS)
        assert problems(report) == []


async def test_merged_segments_have_the_markers() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        partition, writer = broker.partition(TOPIC), Writer(broker)
        await writer.write(P, b"a", b"b")
        await broker.seal(TOPIC)
        await writer.write(Q, b"c")
        await writer.end(P, commits=False)
        await broker.seal(TOPIC)
        await writer.write(P, b"d")
        await writer.write(R, b"open")
        await writer.end(Q, commits=True)
        await writer.end(P, commits=True)
        await broker.seal(TOPIC)
        await writer.write(Q, b"e")
        await writer.end(Q, commits=False)
        for _ in range(5):
            await broker.seal(TOPIC)
            await append(broker, TOPIC, wire.batch([b"plain"]))
        await broker.seal(TOPIC)
        before, count = await read_all(client), len(partition.record.segments)
        assert await broker.process.serving.segment_life.merger.consider(partition)
        assert len(list(partition.references or ())) < count
        broker.forget_cached(TOPIC)
        assert await read_all(client) == before
        assert partition.record.checkpoint_key
        # What the checkpoint has, the record has no more.
        assert partition.record.transactions.aborted == ()
        assert partition.record.transactions.aborted_from == partition.record.log_end_offset
        await check_known(broker, partition)


async def test_aborted_ones_go_with_their_records() -> None:
    """And an open one whose first records are gone has the log start as the last stable offset, as in Kafka."""
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        partition, writer = broker.partition(TOPIC), Writer(broker)
        await writer.write_some()
        deletion = broker.process.serving.segment_life.record_deletion
        # Above the last stable offset, which Kafka allows, too.
        assert await deletion.delete_before(partition, 7) == 7
        assert partition.aborted is not None
        assert tuple(partition.aborted) == partition.record.transactions.aborted == EXPECTED.aborted[1:]
        assert (partition.record.log_start_offset, partition.last_stable_offset) == (7, 7)
        assert await deletion.delete_before(partition, 10) == 10
        assert (tuple(partition.aborted), partition.record.transactions.aborted) == ((), ())
        await writer.end(R, commits=False)
        assert partition.last_stable_offset == partition.record.log_end_offset
        assert [header.base_offset for header in headers_in(await read_all(client, 10))] == [10]


async def rebuilt(objects: ControlledStore) -> MemoryStore:
    metadata = MemoryStore()
    plan = await plan_rebuild(objects, "default", concurrency=4, progress=Silence())
    writer = RecoveryWriter(metadata, objects, plan, configs={}, new_uuid=new_kafka_uuid, progress=Silence())
    await writer.write(skip_damaged=False)
    return metadata


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_a_recovered_cluster_aborts_what_is_open(is_sealed: bool) -> None:
    async with in_process_broker(**SETTINGS) as first:
        await first.create_topic(TOPIC)
        await Writer(first).write_some()
        if is_sealed:
            await first.seal(TOPIC)
        end = first.partition(TOPIC).record.log_end_offset
    metadata = await rebuilt(first.objects)
    [item] = (await metadata.range(keys.PARTITION_MARKERS)).items
    marker = decode_marker_record(item.key, item.value)
    assert (keys.marked_partition(item.key), marker.commit, marker.producer_epoch) == (
        (TOPIC, 0, R),
        False,
        1,
    )
    async with in_process_broker(metadata=metadata, objects=first.objects, **SETTINGS) as second:
        logs = second.process.serving.logs
        await until(lambda: logs.partition(TOPIC, 0) is not None, "the partition is led")
        await until_decided(second, TOPIC)
        partition = second.partition(TOPIC)
        assert partition.record.log_end_offset == partition.last_stable_offset == end + 1
        assert partition.aborted is not None
        assert tuple(partition.aborted) == (*EXPECTED.aborted, AbortedTransaction(R, 5, end, end + 1))
        # The producer of before is fenced.
        with pytest.raises(Exception, match="INVALID_PRODUCER_EPOCH"):
            await append(
                second,
                TOPIC,
                wire.batch([b"late"], producer_id=R, producer_epoch=0, sequence=1, is_transactional=True),
            )
