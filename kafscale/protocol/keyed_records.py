"""The records of a batch for those who need their keys: where they lie, and whether they have a value. Pure.

`protocol/records.py` decodes everything; this walk is made for many records, and copies nothing but keys.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import DecompressedTooLargeError, decompress
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import HEADER_SIZE, BatchHeader, InvalidBatchError
from kafscale.protocol.varint import MAX_VARLONG_BYTES, read_varint

MOST_RECORD_ERRORS: Final = 1000
"""Of a refused batch: an answer does not grow with what a client sends."""

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


class KeylessRecordsError(InvalidBatchError):
    """A batch for a compacted topic has records without a key; `indexes`: the first of them, by their places."""

    def __init__(self, indexes: Sequence[int], count: int) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"{count} records without a key")
        self.indexes = indexes
        self.count = count


def check_keys(batch: memoryview, header: BatchHeader, opened_limit_bytes: int) -> None:
    """Refuse a client's batch unless every record has a key, and there are as many as its header says.

    Raises `KeylessRecordsError`, and `InvalidBatchError` INVALID_RECORD and MESSAGE_TOO_LARGE.
    """
    try:
        data = records_of(batch, header, opened_limit_bytes)
        keyless = [place for place, record in enumerate(walk_records(header, data)) if record[5] is None]
    except DecompressedTooLargeError as problem:
        raise InvalidBatchError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size_bytes} bytes decompresses to more than {opened_limit_bytes} bytes",
        ) from problem
    except CorruptDataError as problem:
        raise InvalidBatchError(ErrorCode.INVALID_RECORD, problem.problem) from problem
    if keyless:
        raise KeylessRecordsError(keyless[:MOST_RECORD_ERRORS], len(keyless))
