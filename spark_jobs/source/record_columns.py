"""Makes Arrow record batches of Kafka's record batches."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from kafscale.errors import CorruptDataError
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import Record, iterate_records
from spark_jobs.source.columns import CREATE_TIME, LOG_APPEND_TIME, arrow_schema

MAX_ROWS = 10_000
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_RECORDS_BYTES = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatches:
    """Whole record batches, checked against a CRC that covers them, and which of their offsets are wanted.

    `name` says in errors which object they are of.
    """

    name: str
    data: memoryview
    first_offset: int
    next_offset: int


def record_columns(
    stored: Iterable[StoredBatches], topic: str, partition: int, *, include_headers: bool
) -> Iterator[pa.RecordBatch]:
    """The wanted records, in order, in batches of up to `MAX_ROWS` rows and about `MAX_BATCH_BYTES`.

    Raises `CorruptDataError` for records that break their format.
    """
    rows: list[tuple[Record, int]] = []
    size_bytes = 0
    for batches in stored:
        for position, header in walk(batches.data, 0, len(batches.data), batches.name):
            if header.is_control:
                continue
            kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
            try:
                for record in iterate_records(batches.data[position:], MAX_RECORDS_BYTES):
                    if not batches.first_offset <= record.offset < batches.next_offset:
                        continue
                    rows.append((record, kind))
                    size_bytes += len(record.key or b"") + len(record.value or b"")
                    if len(rows) >= MAX_ROWS or size_bytes >= MAX_BATCH_BYTES:
                        yield _batch(rows, topic, partition, include_headers)
                        rows, size_bytes = [], 0
            except CorruptDataError as error:
                raise CorruptDataError(batches.name, f"batch {header.base_offset}: {error}") from error
    if rows:
        yield _batch(rows, topic, partition, include_headers)


def _batch(
    rows: list[tuple[Record, int]], topic: str, partition: int, include_headers: bool
) -> pa.RecordBatch:
    schema = arrow_schema(include_headers)
    columns = [
        [record.key for record, _ in rows],
        [record.value for record, _ in rows],
        [topic] * len(rows),
        [partition] * len(rows),
        [record.offset for record, _ in rows],
        [record.timestamp_ms * 1000 for record, _ in rows],
        [kind for _, kind in rows],
    ]
    if include_headers:
        columns.append(
            [
                [{"key": name, "value": value} for name, value in record.headers] if record.headers else None
                for record, _ in rows
            ]
        )
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
