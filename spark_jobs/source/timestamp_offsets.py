"""Finds offsets by timestamp, as Kafka's `offsetsForTimes` does: the first record that is not older.

The references say which segment may hold it. That one is read, whole if it is small; a large one in chunks from its
beginning, for as long as all their records are older.
"""

import asyncio
from collections.abc import Mapping

from kafscale.errors import ObjectNotFoundError
from kafscale.metadata.partition_record import SegmentReference
from kafscale.metadata.store import MetadataReader
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import first_record_at_or_after
from kafscale.storage.bounded import map_bounded
from kafscale.storage.object_store import ObjectReader
from spark_jobs.source.offset_points import PartitionKey
from spark_jobs.source.offset_ranges import Logs, Positions
from spark_jobs.source.splits import Split, plan_pieces
from spark_jobs.source.topic_state import PartitionLog, read_partition

# Each holds a segment, or a chunk of one, in memory.
_PARTITIONS_AT_ONCE = 8
# The most that one batch may hold when it is opened to look at its records.
_OPENED_BATCH_LIMIT_BYTES = 256 * 1024 * 1024


async def offsets_at(
    timestamps: Positions, logs: Logs, metadata: MetadataReader, objects: ObjectReader, namespace: str
) -> Mapping[PartitionKey, int | None]:
    """For each partition of `timestamps` (Unix milliseconds) its `first_offset_at`."""

    async def find(key: PartitionKey) -> int | None:
        return await first_offset_at(timestamps[key], logs[key], metadata, objects, namespace)

    found = await map_bounded(find, list(timestamps), _PARTITIONS_AT_ONCE)
    return dict(zip(timestamps, found, strict=True))


async def first_offset_at(
    timestamp_ms: int, log: PartitionLog, metadata: MetadataReader, objects: ObjectReader, namespace: str
) -> int | None:
    """The offset of the partition's first record that is not older, None when all are.

    Raises `CorruptDataError`, `StoreError`.
    """
    first_offset = log.log_start_offset
    while True:
        reference = next((one for one in log.references if _may_hold(one, timestamp_ms, first_offset)), None)
        if reference is None:
            return None
        try:
            found = await _look_through(reference, timestamp_ms, first_offset, log, objects, namespace)
        except ObjectNotFoundError:
            # Merged with others, or expired, since the record was read.
            log = await read_partition(metadata, objects, log.topic, log.partition)
            if reference in log.references:
                raise
            first_offset = max(first_offset, log.log_start_offset)
            continue
        if found is not None:
            return found
        first_offset = reference.last_offset + 1


def _may_hold(reference: SegmentReference, timestamp_ms: int, first_offset: int) -> bool:
    return reference.max_timestamp_ms >= timestamp_ms and reference.last_offset >= first_offset


async def _look_through(
    reference: SegmentReference,
    timestamp_ms: int,
    first_offset: int,
    log: PartitionLog,
    objects: ObjectReader,
    namespace: str,
) -> int | None:
    # Here, and not above: the compiler that comes with it takes long to load.
    from spark_jobs.source.split_reader import _read

    next_offset = reference.last_offset + 1
    for piece in await plan_pieces(
        log, objects, namespace, max(first_offset, reference.base_offset), next_offset
    ):
        split = Split(
            topic=log.topic,
            partition=log.partition,
            pieces=(piece,),
            size_bytes=piece.size_bytes,
            epochs=log.epochs,
        )
        batches = await _read(objects, namespace, split, piece)
        found = await asyncio.to_thread(_first_in, batches.name, batches.data, timestamp_ms, first_offset)
        if found is not None:
            return found
    return None


def _first_in(name: str, batches: memoryview, timestamp_ms: int, first_offset: int) -> int | None:
    for position, header in walk(batches, 0, len(batches), name):
        if header.max_timestamp < timestamp_ms or header.last_offset < first_offset:
            continue
        found = first_record_at_or_after(
            batches[position:], timestamp_ms, _OPENED_BATCH_LIMIT_BYTES, from_offset=first_offset
        )
        if found is not None:
            return found[0]
    return None
