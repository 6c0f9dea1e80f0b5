"""Batches that Kafka's own code and another writer left (see record_batches/README.md), read exactly."""

from pathlib import Path

import pytest

from kafscale.protocol.compression import CODECS, Codec
from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.record_batch import validate_batch, walk
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record, decode_records
from tests.support.batch_crc import assert_crc

BATCHES = Path(__file__).with_name("record_batches")
LIMIT_BYTES = 100_000
START_MS = 1_790_000_000_000


def golden(name: str) -> memoryview:
    return memoryview((BATCHES / f"{name}.batch").read_bytes())


def java_record(number: int, magic: int) -> Record:
    """The batches that RecordBatches.java makes."""
    return Record(
        number,
        START_MS + number * 37 % 100 if magic else -1,
        None if number % 3 == 0 else b"key-%d" % number,
        None if number % 7 == 0 else b"value-%d " % number * 8,
        (("trace", b"t%d" % number), ("none", None)) if magic == 2 and number % 5 == 0 else (),
    )


@pytest.mark.parametrize("codec", CODECS)
def test_java_batches(codec: Codec) -> None:
    batch = golden(f"java-v2-{codec.type_name}")
    header = validate_batch(batch, 0, len(batch), LIMIT_BYTES)
    assert header.codec is codec
    assert header.size_bytes == len(batch)
    assert (header.base_timestamp, header.max_timestamp) == (START_MS, START_MS + 96)
    assert decode_records(batch, LIMIT_BYTES) == [java_record(number, 2) for number in range(12)]


def test_an_uncompressed_batch_has_javas_bytes() -> None:
    assert encode_batch([java_record(number, 2) for number in range(12)]) == golden("java-v2-none")


@pytest.mark.parametrize("codec", CODECS[:4])
@pytest.mark.parametrize("magic", [0, 1])
def test_java_message_sets(magic: int, codec: Codec) -> None:
    batch = memoryview(
        convert_message_set(golden(f"java-v{magic}-{codec.type_name}"), LIMIT_BYTES, LIMIT_BYTES)
    )
    header = validate_batch(batch, 0, len(batch), LIMIT_BYTES)
    assert header.codec is codec
    assert header.size_bytes == len(batch)
    assert decode_records(batch, LIMIT_BYTES) == [java_record(number, magic) for number in range(12)]


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.ZSTD])
def test_the_console_producers_batches(codec: Codec) -> None:
    batch = golden(f"sample-console-producer-{codec.type_name}")
    ((position, header),) = walk(batch, 0, len(batch), "golden")
    assert_crc(batch, position)
    assert (header.codec, header.base_offset, header.record_count) == (codec, 22, 22)
    assert [(record.offset, record.key, record.value) for record in decode_records(batch, LIMIT_BYTES)] == [
        (number, None, b"line-%05d " % number + b"payload " * 8) for number in range(22, 44)
    ]


def test_the_other_writers_plain_batch() -> None:
    batch = golden("sample-orders-none")
    ((position, _),) = walk(batch, 0, len(batch), "golden")
    assert_crc(batch, position)
    assert decode_records(batch, LIMIT_BYTES) == [
        Record(
            number,
            START_MS + 10 * number,
            None if number % 7 == 0 else b"value-%04d" % number,
            None if number % 3 == 0 else b"key-%d" % number,
            (("trace", b"abc"),) if number % 5 == 0 else (),
        )
        for number in range(40)
    ]


def test_the_other_writers_gzip_batch() -> None:
    batch = golden("sample-orders-gzip")
    ((position, header),) = walk(batch, 0, len(batch), "golden")
    assert_crc(batch, position)
    assert header.codec is Codec.GZIP
    assert decode_records(batch, LIMIT_BYTES) == [
        Record(40 + number, START_MS + 1000 + number, b"gz-%04d" % number, b"k") for number in range(30)
    ]
