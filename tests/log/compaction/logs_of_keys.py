"""Batches of records with keys, as bytes, and what a reader finds in them."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka.record.default_records import DefaultRecordBatchBuilder

from kafscale.protocol.control_records import EndOfTransaction, end_of_transaction_batch
from kafscale.protocol.record_batch import BatchHeader, read_header, stamp
from kafscale.protocol.records import Record, decode_records
from tests.support.wire import CODECS

LIMIT_BYTES = 64 * 1024 * 1024


class Sent(NamedTuple):
    """A record to write; a value of None is a tombstone."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None


def batch_of(
    records: Sequence[Sent],
    base_offset: int = 0,
    *,
    codec: str = "none",
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 0,
    is_transactional: bool = False,
) -> bytes:
    """One batch. `producer`: id, epoch and base sequence."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=is_transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 30,
    )
    now_ms = int(time.time() * 1000)
    for delta, record in enumerate(records):
        timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
        builder.append(delta, timestamp_ms, record.key, record.value, [("name", b"header")])
    batch = bytearray(builder.build())
    stamp(batch, 0, base_offset, leader_epoch)
    return bytes(batch)


def marker_of(
    base_offset: int, producer_id: int, *, commits: bool, epoch: int = 0, now_ms: int = 1_700_000_000_000
) -> bytes:
    """The control batch that ends a producer's transaction."""
    end = EndOfTransaction(producer_id, epoch, coordinator_epoch=3, is_commit=commits)
    marker = bytearray(end_of_transaction_batch(end, now_ms)[0])
    stamp(marker, 0, base_offset, 0)
    return bytes(marker)


def headers_in(batches: bytes) -> list[BatchHeader]:
    """The headers of all batches."""
    found, position = [], 0
    while position < len(batches):
        header = read_header(batches, position)
        found.append(header)
        position += header.size_bytes
    return found


def records_in(batches: bytes) -> list[Record]:
    """All records, by the decoder that everything else uses."""
    found, position = [], 0
    while position < len(batches):
        header = read_header(batches, position)
        found += decode_records(memoryview(batches)[position : position + header.size_bytes], LIMIT_BYTES)
        position += header.size_bytes
    return found


def newest_values(records: Iterable[Record]) -> dict[bytes, bytes]:
    """The value of each key for a consumer that has read everything."""
    found: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found
