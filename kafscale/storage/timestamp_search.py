"""Offsets by timestamp: the first record at or after one, and the record with the largest."""

import asyncio
from collections.abc import Callable

from kafscale.metadata.partition_record import SegmentReference
from kafscale.protocol.records import first_record_at_or_after, record_with_max_timestamp
from kafscale.storage.cached_segment import CachedSegment
from kafscale.storage.log_manager import LogManager
from kafscale.storage.partition import Partition

Found = tuple[int, int]
"""Offset and timestamp of a record."""

NO_TIMESTAMP = -1

# The most that one batch may hold when it is opened to look at its records.
_OPENED_BATCH_LIMIT_BYTES = 256 * 1024 * 1024


async def find_at_or_after(logs: LogManager, partition: Partition, timestamp_ms: int) -> Found | None:
    """The first record whose timestamp is not below `timestamp_ms`, None when there is none.

    Raises `CorruptDataError`, `StoreError`.
    """
    log_start = partition.record.log_start_offset

    def scan(segment: CachedSegment) -> Found | None:
        for batch, header in segment.batches(segment.position_of(log_start)):
            if header.max_timestamp >= timestamp_ms:
                found = first_record_at_or_after(
                    batch, timestamp_ms, _OPENED_BATCH_LIMIT_BYTES, from_offset=log_start
                )
                if found is not None:
                    return found
        return None

    await logs.load(partition)
    for reference in partition.references or ():
        if reference.max_timestamp_ms >= timestamp_ms:
            found = await _scan(logs, partition, reference, scan)
            if found is not None:
                return found
    return None


async def find_max_timestamp(logs: LogManager, partition: Partition) -> Found | None:
    """The first record that has the largest timestamp, None when no record has one.

    Raises `CorruptDataError`, `StoreError`.
    """
    await logs.load(partition)
    latest = max(partition.references or (), key=lambda reference: reference.max_timestamp_ms, default=None)
    if latest is None or latest.max_timestamp_ms == NO_TIMESTAMP:
        return None
    maximum = latest.max_timestamp_ms

    def scan(segment: CachedSegment) -> Found | None:
        for batch, header in segment.batches(segment.position_of(segment.reference.base_offset)):
            if header.max_timestamp == maximum:
                return record_with_max_timestamp(batch, _OPENED_BATCH_LIMIT_BYTES)
        return None

    return await _scan(logs, partition, latest, scan)


async def _scan(
    logs: LogManager,
    partition: Partition,
    reference: SegmentReference,
    scan: Callable[[CachedSegment], Found | None],
) -> Found | None:
    segment = await logs.reader.load(partition, reference)
    try:
        return await asyncio.to_thread(scan, segment)
    finally:
        segment.release()
