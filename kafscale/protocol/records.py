"""The records inside one batch (magic 2), for the few places that look at them."""

from collections.abc import Iterator
from typing import NamedTuple

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import decompress
from kafscale.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header
from kafscale.protocol.varint import MAX_VARLONG_BYTES, read_varint

_NAME = "record batch"
_MAX_TIMESTAMP_MS = 2**63 - 1
_Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record; `offset` is absolute, a header is (name, value), `None` stands for Kafka's null."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: _Headers = ()


def decode_records(batch: memoryview, limit_bytes: int) -> list[Record]:
    """All records of the batch at the start of `batch`, whose CRC has been checked.

    `limit_bytes` bounds the decompressed records. With LogAppendTime every record has the batch's max
    timestamp. Raises CorruptDataError for records that break their format or do not fit the header.
    """
    return list(iterate_records(batch, limit_bytes))


def iterate_records(batch: memoryview, limit_bytes: int) -> Iterator[Record]:
    """The same one by one, for batches that may hold very many; raises only when it comes to the fault."""
    header, data = _open(batch, limit_bytes)
    for start, end, offset, timestamp_ms, position in _walk_records(header, data):
        try:
            key, position = _read_bytes(data, position, end)
            value, position = _read_bytes(data, position, end)
            headers, position = _read_headers(data, position, end)
        except (IndexError, ValueError) as error:
            raise _corrupt(f"the record at byte {start}: {error}") from error
        if position != end:
            raise _corrupt(f"the record at byte {start} has {end - position} bytes too many")
        yield Record(offset, timestamp_ms, key, value, headers)


def first_record_at_or_after(
    batch: memoryview, timestamp_ms: int, limit_bytes: int, *, from_offset: int = 0
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record in offset order that is not older; None when all are.

    Records below `from_offset` (the log start offset) do not count. Keys and values are not looked at.
    Raises CorruptDataError.
    """
    header, data = _open(batch, limit_bytes)
    for _, _, offset, record_timestamp_ms, _ in _walk_records(header, data):
        if record_timestamp_ms >= timestamp_ms and offset >= from_offset:
            return offset, record_timestamp_ms
    return None


def record_with_max_timestamp(batch: memoryview, limit_bytes: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the record with the latest timestamp, the first of several; None without any.

    Kafka's RecordBatch.offsetOfMaxTimestamp. Raises CorruptDataError.
    """
    header, data = _open(batch, limit_bytes)
    latest: tuple[int, int] | None = None
    for _, _, offset, timestamp_ms, _ in _walk_records(header, data):
        if latest is None or timestamp_ms > latest[1]:
            latest = offset, timestamp_ms
    return latest


def _open(batch: memoryview, limit_bytes: int) -> tuple[BatchHeader, bytes | memoryview]:
    header = read_header(batch, 0)
    if header.magic != 2 or not HEADER_SIZE <= header.size_bytes <= len(batch):
        raise _corrupt(f"magic {header.magic}, {header.size_bytes} bytes, of which {len(batch)} are there")
    return header, decompress(header.codec, batch[HEADER_SIZE : header.size_bytes], limit_bytes)


def _walk_records(header: BatchHeader, data: bytes | memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """For each record: its start and end, its offset and timestamp, and where its key's length lies."""
    log_append_time_ms = header.max_timestamp if header.is_log_append_time else None
    position = 0
    for _ in range(header.record_count):
        start = position
        try:
            length, position = read_varint(data, position)
            end = position + length
            # The attributes byte has no meaning yet.
            timestamp_delta, key_position = read_varint(data, position + 1, MAX_VARLONG_BYTES)
            offset_delta, key_position = read_varint(data, key_position)
        except (IndexError, ValueError) as error:
            raise _corrupt(f"the record at byte {start}: {error}") from error
        if end > len(data) or key_position > end:
            raise _corrupt(
                f"the record at byte {start} claims {length} bytes, {len(data) - position} are left"
            )
        if not 0 <= offset_delta <= header.last_offset_delta:
            raise _corrupt(f"offset delta {offset_delta} is not within 0 to {header.last_offset_delta}")
        timestamp_ms = header.base_timestamp + timestamp_delta
        if log_append_time_ms is not None:
            timestamp_ms = log_append_time_ms
        elif not -_MAX_TIMESTAMP_MS <= timestamp_ms <= _MAX_TIMESTAMP_MS:
            raise _corrupt(f"timestamp {timestamp_ms} does not fit 64 bits")
        yield start, end, header.base_offset + offset_delta, timestamp_ms, key_position
        position = end
    if position != len(data):
        raise _corrupt(f"{len(data) - position} bytes follow the last of {header.record_count} records")


def _read_bytes(data: bytes | memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if length > end - position:
        raise ValueError(f"a length of {length} where {end - position} bytes are left")
    return bytes(data[position : position + length]), position + length


def _read_headers(data: bytes | memoryview, position: int, end: int) -> tuple[_Headers, int]:
    count, position = read_varint(data, position)
    if not count:
        return (), position
    # Each takes two bytes or more: a count is never believed before that is known.
    if not 0 < count <= (end - position) // 2:
        raise ValueError(f"a header count of {count} where {end - position} bytes are left")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise ValueError("a header's name is null")
        value, position = _read_bytes(data, position, end)
        # Java's clients read a name that is not UTF-8 in the same way.
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), position


def _corrupt(problem: str) -> CorruptDataError:
    return CorruptDataError(_NAME, problem)
