"""The checkpoints that a checkpointer writes, and those that it may delete."""

from collections.abc import Sequence

import pytest

from kafscale.cluster.topic_configs import effective
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint, encode_checkpoint
from kafscale.formats.partition_record import PartitionRecord, ProducerRecord, encode_partition_record
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.log.batch_append import AppendRules
from kafscale.log.checkpointer import SUPERSEDED_GRACE_MS, Checkpointer
from kafscale.log.partition import Partition, PartitionId
from kafscale.log.partition_log import CHECKPOINT_PRODUCERS, PartitionLog
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import Put
from kafscale.objects.memory_store import MemoryStore
from kafscale.settings.broker import Settings

NOW_MS = 1_000_000_000
NAMESPACE, TOPIC = "default", "orders"
RULES = AppendRules(codec=None, log_append_time=False, segment_bytes=1024 * 1024)


def key(end_offset: int, leader_epoch: int, token: str) -> str:
    return object_keys.checkpoint_key(NAMESPACE, TOPIC, 0, end_offset, leader_epoch, token)


async def put_checkpoints(objects: MemoryStore, ends_and_epochs: Sequence[tuple[int, int]]) -> list[str]:
    keys = [key(end, epoch, f"old{index}") for index, (end, epoch) in enumerate(ends_and_epochs)]
    for name, (end, _) in zip(keys, ends_and_epochs, strict=True):
        content = encode_checkpoint(Checkpoint(end_offset=end, segments=(), producers=()))
        await objects.put_if_absent(name, [content])
    return keys


async def listed(objects: MemoryStore) -> set[str]:
    prefix = object_keys.checkpoints_partition_prefix(NAMESPACE, TOPIC, 0)
    return {info.key async for info in objects.list(prefix)}


def many_producers(from_offset: int) -> tuple[ProducerRecord, ...]:
    """So many that a checkpoint is due."""
    return tuple(
        ProducerRecord(
            producer_id=number,
            producer_epoch=0,
            last_timestamp_ms=NOW_MS,
            batches=(ProducerBatch(first_sequence=0, last_sequence=0, base_offset=from_offset + number),),
        )
        for number in range(CHECKPOINT_PRODUCERS)
    )


async def holding(record: PartitionRecord) -> MemoryMetadata:
    """A metadata store with the record."""
    metadata = MemoryMetadata()
    await metadata.transact([], [Put(keys.partition(TOPIC, 0), encode_partition_record(record))])
    return metadata


def leader(record: PartitionRecord) -> Partition:
    config = effective({}, Settings())
    partition = Partition(PartitionId(TOPIC, 0), 0, record, 7, config, RULES, 7)
    partition.open(Checkpoint(end_offset=record.checkpoint_end_offset, segments=(), producers=()))
    return partition


async def written(checkpointer: Checkpointer, partition: Partition) -> str:
    """Let a checkpoint that is due be written; returns its key."""
    checkpointer.consider(partition)
    await checkpointer._tasks.wait()
    log = partition.log
    assert isinstance(log, PartitionLog)
    assert log.waiting_checkpoint is not None
    return log.waiting_checkpoint.key


async def test_a_replaced_leader_keeps_its_successors_checkpoints() -> None:
    """It goes on after a long pause, and what it does not know is older than the grace period by then."""
    now_ms = NOW_MS
    objects = MemoryStore(lambda: now_ms)
    older, named, successors = await put_checkpoints(objects, [(100, 1), (200, 2), (300, 3)])
    now_ms += 10 * SUPERSEDED_GRACE_MS
    record = PartitionRecord(
        leader_epoch=2,
        log_end_offset=600,
        checkpoint_key=named,
        checkpoint_end_offset=200,
        producers=many_producers(from_offset=200),
    )
    metadata = await holding(record)
    checkpointer = Checkpointer(objects, metadata, NAMESPACE, lambda: now_ms, lambda: "new")
    new = await written(checkpointer, leader(record))
    assert await listed(objects) == {named, successors, new}
    assert older not in await listed(objects)
    await checkpointer.close()


async def test_what_was_superseded_a_moment_ago_stays_for_its_readers() -> None:
    now_ms = NOW_MS
    objects = MemoryStore(lambda: now_ms)
    older, named = await put_checkpoints(objects, [(100, 2), (200, 2)])
    now_ms += SUPERSEDED_GRACE_MS - 1
    record = PartitionRecord(
        leader_epoch=2,
        log_end_offset=600,
        checkpoint_key=named,
        checkpoint_end_offset=200,
        producers=many_producers(from_offset=200),
    )
    metadata = await holding(record)
    checkpointer = Checkpointer(objects, metadata, NAMESPACE, lambda: now_ms, lambda: "new")
    new = await written(checkpointer, leader(record))
    assert await listed(objects) == {older, named, new}
    await checkpointer.close()


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(PartitionRecord(leader_epoch=4, log_end_offset=150), id="made again"),
        pytest.param(PartitionRecord(leader_epoch=3, log_end_offset=600), id="led elsewhere"),
        pytest.param(None, id="deleted"),
    ],
)
async def test_leader_of_a_name_that_came_back_removes_nothing(found: PartitionRecord | None) -> None:
    """The new topic begins at offset 0: its checkpoints end below those that the old leader knows of."""
    now_ms = NOW_MS
    objects = MemoryStore(lambda: now_ms)
    there = await put_checkpoints(objects, [(100, 4), (150, 4), (200, 2)])
    now_ms += 10 * SUPERSEDED_GRACE_MS
    record = PartitionRecord(
        leader_epoch=2,
        log_end_offset=600,
        checkpoint_key=there[2],
        checkpoint_end_offset=200,
        producers=many_producers(from_offset=200),
    )
    metadata = MemoryMetadata() if found is None else await holding(found)
    checkpointer = Checkpointer(objects, metadata, NAMESPACE, lambda: now_ms, lambda: "new")
    new = await written(checkpointer, leader(record))
    assert await listed(objects) == {*there, new}
    await checkpointer.close()
