"""Offsets by timestamp: the first record at or after one, and the record with the largest."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from kafscale.formats.partition_record import SegmentReference
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.current_references import OutdatedReferenceError, load_named
from kafscale.protocol.record_batch import BatchHeader
from kafscale.protocol.records import first_record_at_or_after, record_with_max_timestamp

Found = tuple[int, int]
"""Offset and timestamp of a record."""

NO_TIMESTAMP = -1

# The limit of one decompressed batch whose records are read.
_OPENED_BATCH_LIMIT_BYTES = 256 * 1024 * 1024


Scan = Callable[[CachedSegment, threading.Event], Found | None]
"""Searches a segment on a thread, until the event says that the request was cancelled."""


async def find_at_or_after(logs: LogManager, partition: Partition, timestamp_ms: int) -> Found | None:
    """The first record whose timestamp is not below `timestamp_ms`, None if there is none.

    Raises `CorruptDataError`, `StoreError`.
    """

    def scan(segment: CachedSegment, given_up: threading.Event) -> Found | None:
        log_start = partition.record.log_start_offset
        for batch, header in _batches(segment, log_start, given_up):
            if header.max_timestamp >= timestamp_ms:
                found = first_record_at_or_after(
                    batch, timestamp_ms, _OPENED_BATCH_LIMIT_BYTES, from_offset=log_start
                )
                if found is not None:
                    return found
        return None

    offset = partition.record.log_start_offset
    while True:
        await logs.load(partition)
        following = partition.references.from_offset(offset) if partition.references is not None else ()
        reference = next((one for one in following if one.max_timestamp_ms >= timestamp_ms), None)
        if reference is None:
            return None
        try:
            found = await _scan(logs, partition, reference, timestamp_ms, scan)
        except OutdatedReferenceError:
            continue
        log_start = partition.record.log_start_offset
        if found is not None and found[0] >= log_start:
            return found
        # The record may have been deleted during the search.
        offset = log_start if found is not None else reference.last_offset + 1


async def find_max_timestamp(logs: LogManager, partition: Partition) -> Found | None:
    """The first record with the largest timestamp, None if no record has one.

    Raises `CorruptDataError`, `StoreError`.
    """
    while True:
        await logs.load(partition)
        latest = max(
            partition.references or (), key=lambda reference: reference.max_timestamp_ms, default=None
        )
        if latest is None or latest.max_timestamp_ms == NO_TIMESTAMP:
            return None
        with suppress(OutdatedReferenceError):
            return await _scan(logs, partition, latest, latest.max_timestamp_ms, _last_in_time(latest))


def _last_in_time(reference: SegmentReference) -> Scan:
    def scan(segment: CachedSegment, given_up: threading.Event) -> Found | None:
        for batch, header in _batches(segment, segment.first_offset, given_up):
            if header.max_timestamp == reference.max_timestamp_ms:
                return record_with_max_timestamp(batch, _OPENED_BATCH_LIMIT_BYTES)
        return None

    return scan


def _batches(
    segment: CachedSegment, offset: int, given_up: threading.Event
) -> Iterator[tuple[memoryview, BatchHeader]]:
    """The batches from `offset` on, until cancelled: a batch of a few bytes may take a second to read."""
    for batch, header in segment.batches(segment.position_of(offset)):
        if given_up.is_set():
            return
        yield batch, header


async def _scan(
    logs: LogManager, partition: Partition, reference: SegmentReference, timestamp_ms: int, scan: Scan
) -> Found | None:
    """The result of `scan` for the segment, of which only chunks that may be as late as `timestamp_ms` are read.

    A large segment is read chunk by chunk, until one has a result.
    """
    offset = max(reference.base_offset, partition.record.log_start_offset)
    while (
        offset := logs.reader.skip_before(partition, reference, offset, timestamp_ms)
    ) <= reference.last_offset:
        segment = await load_named(logs, partition, reference, offset)
        given_up = threading.Event()
        offset = segment.next_offset
        try:
            found = await logs.reader.scans.run(partial(scan, segment, given_up), ended=segment.release)
        finally:
            given_up.set()
        if found is not None:
            return found
    return None
