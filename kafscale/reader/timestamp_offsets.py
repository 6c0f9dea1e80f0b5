"""Finds offsets by timestamp, like Kafka's `offsetsForTimes`: the first record that is not older.

The references show which segment may have it. A small one is read whole; a large one in chunks from its beginning,
for as long as all their records are older.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from kafscale.errors import ObjectNotFoundError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment_check import OtherTopicError
from kafscale.objects.object_store import ObjectReader
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import first_record_at_or_after
from kafscale.reader.piece_reader import read_piece
from kafscale.reader.splits import plan_pieces
from kafscale.reader.stored_batches import StoredBatches
from kafscale.reader.topic_state import Logs, PartitionKey, PartitionLog, Positions, TopicStates
from kafscale.tasks.bounded import map_bounded

# Each has a segment, or a chunk of one, in memory.
_PARTITIONS_AT_ONCE = 8
# The most bytes of one batch that is decompressed to look at its records.
_OPENED_BATCH_LIMIT_BYTES = 256 * 1024 * 1024


async def offsets_at(
    timestamps: Positions, logs: Logs, states: TopicStates, objects: ObjectReader, namespace: str
) -> Mapping[PartitionKey, int | None]:
    """For each partition of `timestamps` (Unix milliseconds) its `first_offset_at`."""

    async def find(key: PartitionKey) -> int | None:
        return await first_offset_at(timestamps[key], logs[key], states, objects, namespace)

    found = await map_bounded(find, list(timestamps), _PARTITIONS_AT_ONCE)
    return dict(zip(timestamps, found, strict=True))


async def first_offset_at(
    timestamp_ms: int, log: PartitionLog, states: TopicStates, objects: ObjectReader, namespace: str
) -> int | None:
    """The offset of the partition's first record that is not older, None if all are that the isolation level shows.

    It may be of an aborted transaction, as in Kafka. Raises `CorruptDataError`, `StoreError`.
    """
    first_offset, any_epoch = log.log_start_offset, False
    while True:
        reference = next((one for one in log.references if _may_hold(one, timestamp_ms, first_offset)), None)
        if reference is None:
            return None
        pieces = await plan_pieces(
            log, objects, namespace, max(first_offset, reference.base_offset), reference.last_offset + 1
        )
        try:
            for piece in pieces:
                batches = read_piece(objects, namespace, log, piece, any_epoch=any_epoch)
                found = await _search(batches, timestamp_ms, first_offset)
                if found is not None:
                    return found if found < log.end_offset else None
            first_offset = reference.last_offset + 1
        except (ObjectNotFoundError, OtherTopicError):
            # Sealed, merged, expired, or of a topic that was created again, since the record was read.
            needed = {log.partition: log.log_end_offset}
            (log,) = await states.partitions(log.topic, [log.partition], needed, topic_id=log.topic_id)
            if any_epoch and reference in log.references:
                raise
            any_epoch = reference in log.references
            first_offset = max(first_offset, log.log_start_offset)


def _may_hold(reference: SegmentReference, timestamp_ms: int, first_offset: int) -> bool:
    return reference.max_timestamp_ms >= timestamp_ms and reference.last_offset >= first_offset


async def _search(
    parts: AsyncGenerator[StoredBatches, None], timestamp_ms: int, first_offset: int
) -> int | None:
    async with aclosing(parts):
        async for part in parts:
            found = await asyncio.to_thread(_first_in, part.name, part.data, timestamp_ms, first_offset)
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
