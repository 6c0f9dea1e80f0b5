"""The records of a batch, compared with what kafka-python, aiokafka and kio make and read."""

import struct
from collections.abc import Callable, Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch as kio_read_batch

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import CODECS, Codec, DecompressedTooLargeError
from kafscale.protocol.record_batch import read_header, stamp_log_append_time, write_crc
from kafscale.protocol.record_builder import RecordBatchBuilder, encode_batch, records_of
from kafscale.protocol.records import (
    Record,
    decode_records,
    first_record_at_or_after,
    record_with_max_timestamp,
)

LIMIT_BYTES = 1_000_000
NOW_MS = 1_790_000_000_000

OPTIONAL_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), OPTIONAL_BYTES), max_size=3).map(tuple)
# Timestamps from the year 1970 to 2116, in any order.
RECORD_PARTS = st.tuples(st.integers(0, 2**42), OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS)


def numbered(
    parts: Sequence[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
) -> list[Record]:
    return [Record(offset, *part) for offset, part in enumerate(parts)]


RECORD_LISTS = st.lists(RECORD_PARTS, min_size=1, max_size=20).map(numbered)


def build_with(
    builder_class: Callable[..., KafkaPythonBuilder], records: Sequence[Record], codec: Codec
) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        batch_size=LIMIT_BYTES * 10,
    )
    for record in records:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("builder_class", [KafkaPythonBuilder, AiokafkaBuilder])
@given(records=RECORD_LISTS)
@settings(max_examples=60)
def test_a_batch_has_the_bytes_that_others_write(
    builder_class: Callable[..., KafkaPythonBuilder], records: list[Record]
) -> None:
    ours = encode_batch(
        records,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        is_transactional=True,
        # What each library puts there before the broker stamps it.
        partition_leader_epoch=read_header(
            build_with(builder_class, records, Codec.NONE), 0
        ).partition_leader_epoch,
    )
    assert ours == build_with(builder_class, records, Codec.NONE)


@pytest.mark.parametrize("codec", CODECS)
@given(records=RECORD_LISTS)
@settings(max_examples=25)
def test_we_read_what_others_write(codec: Codec, records: list[Record]) -> None:
    for builder_class in (KafkaPythonBuilder, AiokafkaBuilder):
        assert decode_records(memoryview(build_with(builder_class, records, codec)), LIMIT_BYTES) == records


@pytest.mark.parametrize("codec", CODECS)
@given(records=RECORD_LISTS)
@settings(max_examples=25)
def test_others_read_what_we_write(codec: Codec, records: list[Record]) -> None:
    batch = encode_batch(records, codec=codec)
    for batch_class in (KafkaPythonBatch, AiokafkaBatch):
        other = batch_class(bytearray(batch))
        assert other.validate_crc()
        read = [
            Record(
                row.offset,
                row.timestamp,
                row.key,
                row.value,
                tuple((name, value) for name, value in row.headers),
            )
            for row in other
        ]
        assert read == records


@given(records=RECORD_LISTS)
@settings(max_examples=25)
def test_kio_reads_what_we_write(records: list[Record]) -> None:
    theirs, size = kio_read_batch(encode_batch(records), 0)
    assert size == len(encode_batch(records))
    assert [(record.offset, record.key, record.value) for record in theirs.records] == [
        (record.offset, record.key, record.value) for record in records
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_may_have_gaps_and_start_anywhere(codec: Codec) -> None:
    records = [Record(2**40, 5, b"k", None), Record(2**40 + 9, 3, None, b"v", (("n", None),))]
    batch = encode_batch(records, codec=codec)
    assert read_header(batch, 0).last_offset == 2**40 + 9
    assert read_header(batch, 0).record_count == 2
    assert decode_records(memoryview(batch), LIMIT_BYTES) == records


def test_offsets_must_rise() -> None:
    builder = RecordBatchBuilder(5)
    builder.append(0, None, b"v", offset=5)
    with pytest.raises(ValueError, match="offset 5 is not after 5"):
        builder.append(0, None, b"v", offset=5)


def test_what_follows_the_batch_is_not_looked_at() -> None:
    records = records_of([b"a", None, b"c"], timestamp_ms=NOW_MS, base_offset=4)
    assert decode_records(memoryview(encode_batch(records) + b"next batch"), LIMIT_BYTES) == records
    assert [(record.offset, record.timestamp_ms) for record in records] == [
        (4, NOW_MS),
        (5, NOW_MS + 1),
        (6, NOW_MS + 2),
    ]


def test_records_without_a_timestamp_have_none() -> None:
    records = [Record(0, -1, None, b"a"), Record(1, -1, None, b"b")]
    batch = memoryview(encode_batch(records))
    assert decode_records(batch, LIMIT_BYTES) == records
    assert read_header(batch, 0).base_timestamp == read_header(batch, 0).max_timestamp == -1
    assert record_with_max_timestamp(batch, LIMIT_BYTES) == (0, -1)


def test_a_header_name_that_is_not_utf8_is_read_as_java_reads_it() -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, None, (("name", b"v"),))]))
    at = batch.index(b"name")
    batch[at : at + 4] = b"n\xffme"
    assert decode_records(memoryview(batch), LIMIT_BYTES)[0].headers == (("n\ufffdme", b"v"),)


TIMES = [10, 30, 20, 30, 5]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("timestamp_ms", "found"),
    [(-1, (100, 10)), (10, (100, 10)), (11, (101, 30)), (30, (101, 30)), (31, None)],
)
def test_the_first_record_that_is_not_older(
    codec: Codec, timestamp_ms: int, found: tuple[int, int] | None
) -> None:
    batch = encode_batch(
        [Record(100 + i, time, None, b"v" * 50) for i, time in enumerate(TIMES)], codec=codec
    )
    assert first_record_at_or_after(memoryview(batch), timestamp_ms, LIMIT_BYTES) == found


def test_records_below_the_log_start_offset_are_not_found() -> None:
    batch = memoryview(encode_batch([Record(100 + i, time, None, b"v") for i, time in enumerate(TIMES)]))
    assert first_record_at_or_after(batch, 10, LIMIT_BYTES, from_offset=102) == (102, 20)
    assert first_record_at_or_after(batch, 10, LIMIT_BYTES, from_offset=104) is None


def test_the_first_of_the_latest_records() -> None:
    batch = memoryview(encode_batch([Record(100 + i, time, None, b"v") for i, time in enumerate(TIMES)]))
    assert record_with_max_timestamp(batch, LIMIT_BYTES) == (101, 30)


def test_with_log_append_time_the_first_record_stands_for_all() -> None:
    batch = bytearray(encode_batch([Record(100 + i, time, None, b"v") for i, time in enumerate(TIMES)]))
    stamp_log_append_time(batch, 0, NOW_MS)
    assert first_record_at_or_after(memoryview(batch), NOW_MS, LIMIT_BYTES) == (100, NOW_MS)
    assert first_record_at_or_after(memoryview(batch), NOW_MS + 1, LIMIT_BYTES) is None
    assert record_with_max_timestamp(memoryview(batch), LIMIT_BYTES) == (100, NOW_MS)


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_the_limit_is_refused(codec: Codec) -> None:
    batch = memoryview(encode_batch(records_of([b"v" * 1000] * 10), codec=codec))
    for read in (
        lambda: decode_records(batch, 5_000),
        lambda: first_record_at_or_after(batch, 0, 5_000),
        lambda: record_with_max_timestamp(batch, 5_000),
    ):
        with pytest.raises(DecompressedTooLargeError):
            read()


def with_records(records: bytes, *, count: int = 1, last_offset_delta: int = 0) -> memoryview:
    """A batch whose header is right and whose records are the given bytes."""
    batch = bytearray(encode_batch(records_of([b"v"]))[:61] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, last_offset_delta)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch, 0)
    return memoryview(batch)


GOOD = bytes.fromhex("0e00000001027600")


def test_the_hand_made_record_is_good() -> None:
    assert decode_records(with_records(GOOD), LIMIT_BYTES) == [Record(0, 0, None, b"v")]


@pytest.mark.parametrize(
    "records",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\x00",
        GOOD + GOOD,
        b"\x10" + GOOD[1:],
        b"\x10" + GOOD[1:] + b"\x00",
        b"\x0c" + GOOD[1:],
        b"\x00",
        b"\x01" + GOOD[1:],
        b"\xff\xff\xff\xff\x0f" + GOOD[1:],
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        bytes.fromhex("0e00000201027600"),
        bytes.fromhex("0e00000101027600"),
        bytes.fromhex("0e000000017e7600"),
        bytes.fromhex("0e00000001027602"),
        bytes.fromhex("0e00000001027601"),
        bytes.fromhex("1400000001027602010001"),
        bytes.fromhex("18000000010276feffffff0f"),
    ],
    ids=bytes.hex,
)
def test_records_that_break_their_format_are_refused(records: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_records(with_records(records), LIMIT_BYTES)


def test_fewer_or_more_records_than_the_header_says_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="byte 8"):
        decode_records(with_records(GOOD, count=2, last_offset_delta=1), LIMIT_BYTES)
    with pytest.raises(CorruptDataError, match="8 bytes follow the last of 1 records"):
        decode_records(with_records(GOOD + GOOD, count=1), LIMIT_BYTES)


def test_a_batch_that_is_cut_or_of_another_magic_is_refused() -> None:
    batch = encode_batch(records_of([b"v"]))
    for broken in (
        batch[:-1],
        batch[:60],
        batch[:16] + b"\x01" + batch[17:],
        batch[:8] + bytes(4) + batch[12:],
    ):
        with pytest.raises(CorruptDataError):
            decode_records(memoryview(broken), LIMIT_BYTES)


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, None), Record(1, 2**62, None, None)]))
    struct.pack_into(">q", batch, 27, 2**62)
    with pytest.raises(CorruptDataError, match="64 bits"):
        decode_records(memoryview(batch), LIMIT_BYTES)
