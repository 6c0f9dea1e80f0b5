"""The wanted records of stored batches one by one, for readers of few; without Arrow."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafscale.errors import CorruptDataError
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import Record, iterate_records
from kafscale.reader.stored_batches import StoredBatches

MAX_RECORDS_BYTES: Final = 1024**3
"""The limit on one batch's records, decompressed."""


class PlacedRecord(NamedTuple):
    """A record and where it lies. `is_log_append_time`: its timestamp is the log's, not the producer's."""

    partition: int
    is_log_append_time: bool
    record: Record


def records_of(batches: StoredBatches) -> Iterator[PlacedRecord]:
    """Its wanted records, ascending, without those of control batches and of aborted transactions.

    Raises `CorruptDataError` for records that break their format.
    """
    for position, header in walk(batches.data, 0, len(batches.data), batches.name):
        if header.base_offset >= batches.next_offset:
            return
        if header.is_control or header.last_offset < batches.first_offset or batches.aborted.has(header):
            continue
        try:
            for record in iterate_records(batches.data[position:], MAX_RECORDS_BYTES):
                if batches.first_offset <= record.offset < batches.next_offset:
                    yield PlacedRecord(batches.partition, header.is_log_append_time, record)
        except CorruptDataError as problem:
            raise CorruptDataError(
                batches.name, f"the batch at byte {position}: {problem.problem}"
            ) from problem
