"""The published state of a topic at one moment: the metadata store's records and their checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from kafscale.errors import KafscaleError, ObjectNotFoundError
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT, Checkpoint, decode_checkpoint
from kafscale.formats.partition_record import (
    EpochStart,
    PartitionRecord,
    SegmentReference,
    decode_partition_record,
)
from kafscale.formats.topic_record import decode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ObjectReader
from kafscale.tasks.bounded import map_bounded

_CONCURRENCY = 16


class UnknownTopicError(KafscaleError):
    """The topic does not exist, or is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """Start and end of one partition's log, from its record alone, without the checkpoint."""

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """One partition as published: all references with an offset from `log_start_offset` on, ascending.

    Gaps between references are legal. An object without a reference is not published.
    """

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    references: tuple[SegmentReference, ...]
    epochs: tuple[EpochStart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLog:
    """A topic and its partitions, by index."""

    topic: str
    topic_id: UUID
    partitions: tuple[PartitionLog, ...]


async def list_topics(metadata: MetadataReader) -> list[TopicRecord]:
    """The topics that are not being deleted, by name. Raises `StoreError`, `CorruptDataError`."""
    found = (await metadata.range(keys.TOPICS)).items
    records = [decode_topic_record(item.key, item.value) for item in found]
    return [record for record in records if record.state is TopicState.ACTIVE]


async def read_topic(
    metadata: MetadataReader,
    objects: ObjectReader,
    topic: str,
    partitions: Sequence[int] | None = None,
) -> TopicLog:
    """The topic as it is now; `partitions` None for all of them.

    Raises `UnknownTopicError` (also for a partition that the topic does not have), `StoreError`,
    `CorruptDataError`.
    """
    record, wanted = await _find_topic(metadata, topic, partitions)

    async def read(partition: int) -> PartitionLog:
        return await read_partition(metadata, objects, topic, partition)

    logs = await map_bounded(read, wanted, _CONCURRENCY)
    return TopicLog(topic=topic, topic_id=record.topic_id, partitions=tuple(logs))


async def read_topic_ends(
    metadata: MetadataReader, topic: str, partitions: Sequence[int] | None = None
) -> list[PartitionEnds]:
    """Start and end of the topic's partitions now, for callers that poll: no object is read.

    Raises as `read_topic` does.
    """
    _, wanted = await _find_topic(metadata, topic, partitions)

    async def read(partition: int) -> PartitionEnds:
        record, _ = await _partition_record(metadata, topic, partition)
        return PartitionEnds(
            topic=topic,
            partition=partition,
            log_start_offset=record.log_start_offset,
            log_end_offset=record.log_end_offset,
        )

    return await map_bounded(read, wanted, _CONCURRENCY)


async def _find_topic(
    metadata: MetadataReader, topic: str, partitions: Sequence[int] | None
) -> tuple[TopicRecord, list[int]]:
    """The topic's record, and the wanted partitions."""
    held = await metadata.get(keys.topic(topic))
    record = None if held is None else decode_topic_record(held.key, held.value)
    if record is None or record.state is not TopicState.ACTIVE:
        raise UnknownTopicError(f"there is no topic {topic!r} in the metadata store")
    for partition in partitions or ():
        if not 0 <= partition < record.partition_count:
            raise UnknownTopicError(
                f"topic {topic!r} has no partition {partition}: legal are 0 to {record.partition_count - 1}"
            )
    return record, list(range(record.partition_count)) if partitions is None else sorted(set(partitions))


async def read_partition(
    metadata: MetadataReader, objects: ObjectReader, topic: str, partition: int
) -> PartitionLog:
    """The partition as it is now. Raises `StoreError`, `CorruptDataError`, `UnknownTopicError`."""
    last_revision = -1
    while True:
        record, revision = await _partition_record(metadata, topic, partition)
        try:
            checkpoint = await _read_checkpoint(objects, record.checkpoint_key)
            break
        except ObjectNotFoundError:
            # Replaced by a newer one and deleted since the record was read; the newer record names that.
            if revision == last_revision:
                raise
            last_revision = revision
    references = tuple(
        reference
        for reference in (*checkpoint.segments, *record.segments)
        if reference.last_offset >= record.log_start_offset
    )
    return PartitionLog(
        topic=topic,
        partition=partition,
        log_start_offset=record.log_start_offset,
        log_end_offset=record.log_end_offset,
        references=references,
        epochs=record.epochs,
    )


async def _partition_record(
    metadata: MetadataReader, topic: str, partition: int
) -> tuple[PartitionRecord, int]:
    """The record, and the revision of its last change."""
    key = keys.partition(topic, partition)
    held = await metadata.get(key)
    if held is None:
        raise UnknownTopicError(f"there is no record of partition {partition} of topic {topic!r}")
    return decode_partition_record(key, held.value), held.mod_revision


async def _read_checkpoint(objects: ObjectReader, key: str) -> Checkpoint:
    return decode_checkpoint(key, await objects.get(key)) if key else EMPTY_CHECKPOINT
