"""The batches that compaction writes: those that lose records, and the empty ones in the place of what is gone. Pure.

A batch keeps its offsets, its producer's fields, its leader epoch and its codec. Where whole batches are gone an
empty batch has their offsets, so that a compacted segment has no gaps: a reader of a part of it can still tell from
the batches alone that nothing is missing (docs/format/segment.md).
"""

from collections.abc import Sequence
from typing import Final

from kafscale.protocol.compression import Codec, compress
from kafscale.protocol.keyed_records import Walked
from kafscale.protocol.record_batch import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    write_crc,
    write_header,
)
from kafscale.protocol.varint import append_varint

MOST_OFFSET_DELTA: Final = 2**31 - 1


def empty_batch(base_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """A batch without records. The offsets are at most `MOST_OFFSET_DELTA` apart."""
    return _encoded(
        BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            partition_leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=last_offset - base_offset,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=0,
        ),
        b"",
    )


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records; what it says of its producer stays (Kafka's writeEmptyHeader)."""
    return _encoded(
        header._replace(
            attributes=header.attributes & ~(DELETE_HORIZON_FLAG | CODEC_MASK),
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def reduced(header: BatchHeader, data: bytes, kept: Sequence[Walked], delete_horizon_ms: int | None) -> bytes:
    """The batch with these of its records, of which there is at least one.

    `data`: all of its records, decompressed. `delete_horizon_ms`: the time to note in a batch without one after
    which its tombstones may go, None for none.
    """
    if delete_horizon_ms is None:
        records = b"".join([data[start:end] for start, end, *_ in kept])
        base_timestamp, attributes = header.base_timestamp, header.attributes
    else:
        # The horizon takes the place of the base timestamp: the deltas count from there (KIP-534).
        shift_ms = header.base_timestamp - delete_horizon_ms
        records = b"".join([_shifted(data, one, shift_ms) for one in kept])
        base_timestamp, attributes = delete_horizon_ms, header.attributes | DELETE_HORIZON_FLAG
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = header.base_timestamp + max(one[3] for one in kept)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return _encoded(changed, records if header.codec is Codec.NONE else compress(header.codec, records))


def _shifted(data: bytes, record: Walked, shift_ms: int) -> bytes:
    """The record, its timestamp delta larger by `shift_ms`."""
    _, end, rest, timestamp_delta, *_ = record
    # The attributes byte has no meaning, and clients write 0.
    content = bytearray(1)
    append_varint(content, timestamp_delta + shift_ms)
    content += data[rest:end]
    shifted = bytearray()
    append_varint(shifted, len(content))
    return bytes(shifted + content)


def _encoded(header: BatchHeader, payload: bytes) -> bytes:
    batch = bytearray(HEADER_SIZE + len(payload))
    write_header(batch, 0, header._replace(batch_length=len(batch) - LOG_OVERHEAD, crc=0))
    batch[HEADER_SIZE:] = payload
    write_crc(batch, 0)
    return bytes(batch)
