"""The expected columns, by the decoder that makes an object of every record."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from kafscale.arrow.record_columns import record_columns
from kafscale.errors import CorruptDataError
from kafscale.formats.partition_transactions import AbortedTransaction
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import iterate_records
from kafscale.protocol.types import Buffer
from kafscale.reader.aborted_batches import AbortedBatches
from kafscale.reader.stored_batches import StoredBatches

LIMIT_BYTES = 2**30
MAX_OFFSET = 2**63 - 1
MAX_TIMESTAMP_MS = (2**63 - 1) // 1000

Row = tuple[Any, ...]


def rows_of(
    data: Buffer,
    first_offset: int = 0,
    next_offset: int = MAX_OFFSET,
    *,
    include_headers: bool = True,
    aborted: Sequence[AbortedTransaction] = (),
) -> list[Row]:
    """The rows that the columns come to; each Arrow batch is held against Arrow's own rules."""
    rows: list[Row] = []
    stored = StoredBatches(
        name="object",
        partition=7,
        data=memoryview(data),
        first_offset=first_offset,
        next_offset=next_offset,
        aborted=AbortedBatches(aborted),
    )
    for batch in record_columns([stored], "events", include_headers=include_headers):
        rows += batch_rows(batch)
    return rows


def batch_rows(batch: pa.RecordBatch) -> list[Row]:
    """A row: key, value, topic, partition, offset, time in microseconds, its type, and headers if they are there."""
    batch.validate(full=True)
    columns = [
        (column.cast(pa.int64()) if name == "timestamp" else column).to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return list(zip(*columns, strict=True))


def expected_rows(
    data: Buffer,
    first_offset: int = 0,
    next_offset: int = MAX_OFFSET,
    *,
    include_headers: bool = True,
    aborted: Sequence[AbortedTransaction] = (),
) -> list[Row]:
    """The rows by the oracle. Raises as `record_columns` does."""
    rows: list[Row] = []
    for position, header in walk(data, 0, len(data), "object"):
        if header.base_offset >= next_offset:
            break
        if header.is_control or header.last_offset < first_offset:
            continue
        if header.is_transactional and any(
            one.producer_id == header.producer_id
            and one.first_offset <= header.base_offset <= one.last_offset
            for one in aborted
        ):
            continue
        kind = 1 if header.is_log_append_time else 0
        for record in iterate_records(memoryview(data)[position:], LIMIT_BYTES):
            if not first_offset <= record.offset < next_offset:
                continue
            time_us = None if abs(record.timestamp_ms) > MAX_TIMESTAMP_MS else record.timestamp_ms * 1000
            headers = [{"key": name, "value": value} for name, value in record.headers] or None
            row = (record.key, record.value, "events", 7, record.offset, time_us, kind)
            rows.append((*row, headers) if include_headers else row)
    return rows


def outcome(rows: Callable[[memoryview], list[Row]], data: memoryview) -> list[Row] | str:
    """The rows, or the fact of an error: which one of several faults is found first may differ."""
    try:
        return rows(data)
    except CorruptDataError:
        return "refused"
