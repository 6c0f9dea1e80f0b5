"""Message sets of old producers, made by kafka-python and aiokafka, and what must not get through."""

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from kafscale.protocol.compression import Codec, compress
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.record_batch import InvalidBatchError, validate_batch
from kafscale.protocol.records import Record, decode_records

LIMIT_BYTES = 1_000_000
NOW_MS = 1_790_000_000_000

Row = tuple[int, bytes | None, bytes | None]
ROWS: list[Row] = [
    (NOW_MS + 5, b"key", b"value " * 30),
    (NOW_MS, None, b"value " * 30),
    (NOW_MS + 9, b"key", None),
    (NOW_MS + 9, None, None),
    (NOW_MS + 1, b"", b""),
]


def message(
    row: Row = ROWS[0], *, magic: int = 1, attributes: int = 0, offset: int = 0, crc_xor: int = 0
) -> bytes:
    """One message by the format's own page, the CRC right unless it is to be wrong."""
    timestamp_ms, key, value = row
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp_ms) if magic else b""
    for data in (key, value):
        body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    body = struct.pack(">I", zlib.crc32(body) ^ crc_xor) + body
    return struct.pack(">qi", offset, len(body)) + body


def wrapper(inner: bytes, codec: Codec, *, magic: int = 1, attributes: int = 0) -> bytes:
    """A compressed set of messages."""
    return message((NOW_MS, None, compress(codec, inner)), magic=magic, attributes=attributes | codec)


def converted(data: bytes, opened_limit_bytes: int = LIMIT_BYTES) -> tuple[Codec, list[Record]]:
    """The batch's codec and records, after the checks that every produced batch goes through."""
    batch = memoryview(convert_message_set(memoryview(data), LIMIT_BYTES, opened_limit_bytes))
    header = validate_batch(batch, 0, len(batch), LIMIT_BYTES)
    assert header.base_offset == 0
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    records = decode_records(batch, LIMIT_BYTES)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    return header.codec, records


def records_of_rows(rows: Sequence[Row], magic: int) -> list[Record]:
    return [
        Record(offset, timestamp_ms if magic else -1, key, value)
        for offset, (timestamp_ms, key, value) in enumerate(rows)
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
@pytest.mark.parametrize("builder_class", [KafkaPythonBuilder, AiokafkaBuilder])
def test_what_old_producers_write_is_converted(
    magic: int, codec: Codec, builder_class: Callable[..., KafkaPythonBuilder]
) -> None:
    builder = builder_class(magic=magic, compression_type=int(codec), batch_size=LIMIT_BYTES)
    for offset, (timestamp_ms, key, value) in enumerate(ROWS):
        builder.append(offset, timestamp=timestamp_ms, key=key, value=value)
    assert converted(bytes(builder.build())) == (codec, records_of_rows(ROWS, magic))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("first_offset", [0, 1000])
def test_relative_absolute_and_wrong_offsets_mean_nothing(
    codec: Codec, magic: int, first_offset: int
) -> None:
    inner = b"".join(message(row, magic=magic, offset=first_offset) for row in ROWS)
    data = wrapper(inner, codec, magic=magic) if codec else inner
    assert converted(data) == (codec, records_of_rows(ROWS, magic))


SET = wrapper(message(ROWS[2]) + message(ROWS[3]), Codec.GZIP)


@pytest.mark.parametrize("data", [SET + SET, SET + message(), message() + SET, SET + b"x"])
def test_compressed_set_with_company_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidBatchError, match="not the only one") as refused:
        convert_message_set(memoryview(data), LIMIT_BYTES, LIMIT_BYTES)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_messages_beyond_the_batch_limit_are_not_looked_at() -> None:
    """The damage at the end would be found otherwise."""
    data = message(magic=0) * 2000 + b"damage"
    with pytest.raises(InvalidBatchError) as refused:
        convert_message_set(memoryview(data), 100_000, LIMIT_BYTES)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_messages_with_and_without_timestamp_are_mixed() -> None:
    rows: list[Row] = [(-1, None, b"a"), (NOW_MS, None, b"b")]
    assert converted(b"".join(message(row) for row in rows)) == (Codec.NONE, records_of_rows(rows, 1))


REFUSED: list[tuple[str, bytes, ErrorCode]] = [
    ("empty", b"", ErrorCode.INVALID_RECORD),
    ("wrong CRC", message(crc_xor=1), ErrorCode.CORRUPT_MESSAGE),
    ("wrong CRC of a second message", message() + message(crc_xor=1), ErrorCode.CORRUPT_MESSAGE),
    ("wrong CRC inside", wrapper(message(crc_xor=1), Codec.GZIP), ErrorCode.CORRUPT_MESSAGE),
    ("cut", message()[:-1], ErrorCode.CORRUPT_MESSAGE),
    ("cut inside", wrapper(message()[:-1], Codec.SNAPPY), ErrorCode.CORRUPT_MESSAGE),
    ("size too small", message()[:8] + struct.pack(">i", 21) + message()[12:], ErrorCode.CORRUPT_MESSAGE),
    ("negative size", message()[:8] + struct.pack(">i", -1) + message()[12:], ErrorCode.CORRUPT_MESSAGE),
    ("another magic", message(magic=2), ErrorCode.INVALID_RECORD),
    ("mixed magics", message(magic=0) + message(magic=1), ErrorCode.INVALID_RECORD),
    ("mixed magics inside", wrapper(message(magic=0), Codec.GZIP), ErrorCode.INVALID_RECORD),
    ("LogAppendTime", message(attributes=8), ErrorCode.INVALID_TIMESTAMP),
    ("LogAppendTime of a set", wrapper(message(), Codec.GZIP, attributes=8), ErrorCode.INVALID_TIMESTAMP),
    ("negative timestamp", message((-2, None, b"v")), ErrorCode.INVALID_TIMESTAMP),
    ("zstd", wrapper(message(), Codec.ZSTD), ErrorCode.INVALID_RECORD),
    ("codec 5", message(attributes=5), ErrorCode.INVALID_RECORD),
    ("null set", message((NOW_MS, None, None), attributes=1), ErrorCode.INVALID_RECORD),
    ("empty set", wrapper(b"", Codec.GZIP), ErrorCode.INVALID_RECORD),
    ("set in a set", wrapper(wrapper(message(), Codec.GZIP), Codec.GZIP), ErrorCode.INVALID_RECORD),
    ("noise for a set", message((NOW_MS, None, b"noise"), attributes=1), ErrorCode.INVALID_RECORD),
]


@pytest.mark.parametrize(("data", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_kafka_refuses_is_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(InvalidBatchError) as refused:
        convert_message_set(memoryview(data), LIMIT_BYTES, LIMIT_BYTES)
    assert refused.value.code is code
    assert refused.value.message


@pytest.mark.parametrize("key_length", [-2, 9, 2**31 - 1])
def test_a_length_inside_a_message_is_not_believed(key_length: int) -> None:
    body = struct.pack(">bbqi", 1, 0, NOW_MS, key_length) + struct.pack(">i", -1)
    body = struct.pack(">I", zlib.crc32(body)) + body
    with pytest.raises(InvalidBatchError) as refused:
        convert_message_set(memoryview(struct.pack(">qi", 0, len(body)) + body), LIMIT_BYTES, LIMIT_BYTES)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_compressed_set_keeps_to_the_limit() -> None:
    inner = message((NOW_MS, None, bytes(1000))) * 3
    assert len(converted(wrapper(inner, Codec.GZIP), len(inner))[1]) == 3
    with pytest.raises(InvalidBatchError) as refused:
        converted(wrapper(inner, Codec.GZIP), len(inner) - 1)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_bomb_is_refused() -> None:
    bomb = message((NOW_MS, None, gzip.compress(bytes(100_000_000), 1)), attributes=Codec.GZIP)
    with pytest.raises(InvalidBatchError) as refused:
        convert_message_set(memoryview(bomb), LIMIT_BYTES, LIMIT_BYTES)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
