"""The records of a batch as compaction sees them: where they lie, their keys, and whether they have a value. Pure.

`protocol/records.py` decodes everything; this walk is made for many records, and copies nothing but keys.
"""

from collections.abc import Iterator

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import decompress
from kafscale.protocol.record_batch import HEADER_SIZE, BatchHeader
from kafscale.protocol.varint import MAX_VARLONG_BYTES, read_varint

_NAME = "record batch"

Walked = tuple[int, int, int, int, int, bytes | None, bool]
"""Of a record: start, end, the start of what follows its timestamp delta, the timestamp and offset deltas, its key,
None for none, and whether it has a value."""


def records_of(batch: memoryview, header: BatchHeader, limit_bytes: int) -> bytes:
    """The decompressed records of the batch. Raises `CorruptDataError`, also for more than `limit_bytes`."""
    return bytes(decompress(header.codec, batch[HEADER_SIZE : header.size_bytes], limit_bytes))


def walk_records(header: BatchHeader, data: bytes) -> Iterator[Walked]:
    """Each of the batch's records in turn. Raises `CorruptDataError` at what is none, or not of this header."""
    position, most_delta, size = 0, header.last_offset_delta, len(data)
    before = -1
    for _ in range(header.record_count):
        start = position
        try:
            byte = data[position]
            if byte < 0x80:
                length, position = byte >> 1 ^ -(byte & 1), position + 1
            else:
                length, position = read_varint(data, position)
            end = position + length
            # Behind the attributes, a byte without a meaning.
            byte = data[position + 1]
            if byte < 0x80:
                timestamp_delta, position = byte >> 1 ^ -(byte & 1), position + 2
            else:
                timestamp_delta, position = read_varint(data, position + 1, MAX_VARLONG_BYTES)
            rest = position
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = byte >> 1 ^ -(byte & 1), position + 1
            else:
                offset_delta, position = read_varint(data, position)
            byte = data[position]
            if byte < 0x80:
                key_length, position = byte >> 1 ^ -(byte & 1), position + 1
            else:
                key_length, position = read_varint(data, position)
            key = None
            if key_length >= 0:
                key = data[position : position + key_length]
                position += key_length
            # The sign of a varint is its first byte's lowest bit.
            has_value = not data[position] & 1
        except (IndexError, ValueError) as problem:
            raise CorruptDataError(_NAME, f"the record at byte {start}: {problem}") from problem
        if end > size or position >= end:
            raise CorruptDataError(
                _NAME, f"the record at byte {start} claims {length} bytes, {size - start} are left"
            )
        if not before < offset_delta <= most_delta:
            raise CorruptDataError(
                _NAME, f"offset delta {offset_delta} follows {before}, the last one is {most_delta}"
            )
        before = offset_delta
        yield start, end, rest, timestamp_delta, offset_delta, key, has_value
        position = end
    if position != size:
        raise CorruptDataError(
            _NAME, f"{size - position} bytes follow the last of {header.record_count} records"
        )
