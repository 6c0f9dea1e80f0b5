"""Batch headers: what is read, refused, stamped, walked and compressed."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import CODECS, Codec, compress, decompress
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    BatchHeader,
    InvalidBatchError,
    compress_into,
    magic_at,
    read_header,
    sequence_after,
    sequence_before,
    stamp,
    stamp_log_append_time,
    validate_batch,
    walk,
    write_crc,
)
from kafscale.protocol.record_builder import encode_batch, records_of
from kafscale.protocol.records import Record, decode_records
from tests.support.batch_crc import assert_crc

MAX_BYTES = 1_048_588
RECORDS = [
    Record(offset, 1000 + offset, b"key", b"value %d " % offset * 20, (("h", b"v"),)) for offset in range(5)
]


def batch_with(change: Callable[[bytearray], None], *, keep_crc: bool = False) -> memoryview:
    """A good batch of five records after `change`, its CRC right again unless `keep_crc`."""
    batch = bytearray(encode_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=10))
    change(batch)
    if not keep_crc:
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return memoryview(batch)


def put(form: str, position: int, value: int) -> Callable[[bytearray], None]:
    """A change that writes one field."""
    return lambda batch: struct.pack_into(form, batch, position, value)


def test_the_header_is_read_field_by_field() -> None:
    batch = struct.pack(">qiibIhiqqqhii", 11, 12, 13, 2, 15, 0x1B, 17, 18, 19, 20, 21, 22, 23)
    assert len(batch) == HEADER_SIZE == 61
    header = read_header(b"\xff" + batch, 1)
    assert header == BatchHeader(
        base_offset=11,
        batch_length=12,
        partition_leader_epoch=13,
        magic=2,
        crc=15,
        attributes=0x1B,
        last_offset_delta=17,
        base_timestamp=18,
        max_timestamp=19,
        producer_id=20,
        producer_epoch=21,
        base_sequence=22,
        record_count=23,
    )
    assert header.size_bytes == 24
    assert header.last_offset == 28
    assert header.last_sequence == 39


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (0x00, (Codec.NONE, False, False, False)),
        (0x01, (Codec.GZIP, False, False, False)),
        (0x0A, (Codec.SNAPPY, True, False, False)),
        (0x13, (Codec.LZ4, False, True, False)),
        (0x34, (Codec.ZSTD, False, True, True)),
    ],
)
def test_attributes_are_taken_apart(attributes: int, expected: tuple[Codec, bool, bool, bool]) -> None:
    header = read_header(batch_with(put(">h", 21, attributes)), 0)
    flags = header.is_log_append_time, header.is_transactional, header.is_control
    assert (header.codec, *flags) == expected


def test_a_codec_that_kafka_does_not_know_is_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="codec 5"):
        _ = read_header(batch_with(put(">h", 21, 5)), 0).codec


def test_a_header_that_is_cut_is_corrupt() -> None:
    batch = encode_batch(RECORDS)
    with pytest.raises(CorruptDataError, match="60 bytes"):
        read_header(batch[:60], 0)
    with pytest.raises(CorruptDataError):
        read_header(batch, len(batch) - 60)


@pytest.mark.parametrize(
    ("sequence", "increment", "after"),
    [
        (0, 0, 0),
        (5, 4, 9),
        (MAX_SEQUENCE, 0, MAX_SEQUENCE),
        (MAX_SEQUENCE, 1, 0),
        (MAX_SEQUENCE - 3, 10, 6),
        (1, MAX_SEQUENCE, 0),
    ],
)
def test_sequences_wrap_around_as_kafkas_do(sequence: int, increment: int, after: int) -> None:
    assert sequence_after(sequence, increment) == after
    assert sequence_before(after, increment) == sequence


def test_the_last_sequence_of_a_batch() -> None:
    header = read_header(
        encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=MAX_SEQUENCE - 1), 0
    )
    assert header.last_sequence == 2
    assert read_header(encode_batch(RECORDS), 0).last_sequence == NO_SEQUENCE


@pytest.mark.parametrize("codec", CODECS)
def test_a_good_batch_is_accepted(codec: Codec) -> None:
    good = encode_batch(RECORDS, codec=codec, producer_id=7, producer_epoch=1, base_sequence=10)
    view = memoryview(b"before" + good + b"after")
    end = 6 + len(good)
    header = validate_batch(view, 6, end, len(good))
    assert header == read_header(good, 0)
    assert header.size_bytes == len(good)
    assert header.codec is codec


REFUSED: list[tuple[str, memoryview, ErrorCode]] = [
    ("flipped record bit", batch_with(put(">b", 80, 1), keep_crc=True), ErrorCode.CORRUPT_MESSAGE),
    ("wrong CRC", batch_with(put(">I", 17, 1), keep_crc=True), ErrorCode.CORRUPT_MESSAGE),
    ("length too small", batch_with(put(">i", 8, 48)), ErrorCode.CORRUPT_MESSAGE),
    ("negative length", batch_with(put(">i", 8, -1)), ErrorCode.CORRUPT_MESSAGE),
    ("length past the end", batch_with(put(">i", 8, 2000)), ErrorCode.CORRUPT_MESSAGE),
    ("huge length", batch_with(put(">i", 8, 2**31 - 1)), ErrorCode.MESSAGE_TOO_LARGE),
    ("magic 0", batch_with(put(">b", 16, 0)), ErrorCode.INVALID_RECORD),
    ("magic 1", batch_with(put(">b", 16, 1)), ErrorCode.INVALID_RECORD),
    ("magic 3", batch_with(put(">b", 16, 3)), ErrorCode.CORRUPT_MESSAGE),
    ("magic -1", batch_with(put(">b", 16, -1)), ErrorCode.CORRUPT_MESSAGE),
    ("no records", batch_with(put(">i", 57, 0)), ErrorCode.INVALID_RECORD),
    ("negative record count", batch_with(put(">i", 57, -5)), ErrorCode.INVALID_RECORD),
    ("too many records", batch_with(put(">i", 57, 6)), ErrorCode.INVALID_RECORD),
    ("negative offset delta", batch_with(put(">i", 23, -1)), ErrorCode.INVALID_RECORD),
    ("control batch", batch_with(put(">h", 21, 0x20)), ErrorCode.INVALID_RECORD),
    ("codec 5", batch_with(put(">h", 21, 5)), ErrorCode.INVALID_RECORD),
    ("codec 7", batch_with(put(">h", 21, 7)), ErrorCode.INVALID_RECORD),
    ("no sequence", batch_with(put(">i", 53, -1)), ErrorCode.INVALID_RECORD),
    ("LogAppendTime", batch_with(put(">h", 21, 0x08)), ErrorCode.INVALID_TIMESTAMP),
]


@pytest.mark.parametrize(("view", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_bad_batch_is_refused_with_kafkas_code(view: memoryview, code: ErrorCode) -> None:
    with pytest.raises(InvalidBatchError) as refused:
        validate_batch(view, 0, len(view), MAX_BYTES)
    assert refused.value.code is code
    assert refused.value.message


def test_a_batch_cut_anywhere_is_corrupt() -> None:
    good = memoryview(encode_batch(RECORDS))
    for end in range(len(good)):
        with pytest.raises(InvalidBatchError) as refused:
            validate_batch(good, 0, end, MAX_BYTES)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE, end


def test_short_old_message_differs_from_a_cut_batch() -> None:
    old = memoryview(bytes(16) + b"\x01" + bytes(17))
    with pytest.raises(InvalidBatchError) as refused:
        validate_batch(old, 0, len(old), MAX_BYTES)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert magic_at(old, 0, len(old)) == 1
    assert magic_at(old, 0, 16) is None
    assert magic_at(bytes(16) + b"\xff", 0, 17) == -1


def test_the_size_limit_counts_the_header() -> None:
    good = memoryview(encode_batch(RECORDS))
    validate_batch(good, 0, len(good), len(good))
    with pytest.raises(InvalidBatchError, match=f"{len(good)} bytes") as refused:
        validate_batch(good, 0, len(good), len(good) - 1)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_batch_without_room_for_its_offsets_is_refused(codec: Codec) -> None:
    claimed = 2**31 - 1
    batch = bytearray(encode_batch(RECORDS, codec=codec)[: 61 if codec else 75])
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, claimed - 1)
    struct.pack_into(">i", batch, 57, claimed)
    write_crc(batch, 0)
    with pytest.raises(InvalidBatchError, match="cannot lie in") as refused:
        validate_batch(memoryview(batch), 0, len(batch), MAX_BYTES)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_the_smallest_records_are_accepted() -> None:
    batch = encode_batch([Record(offset, 5, None, None) for offset in range(60)])
    assert len(batch) == HEADER_SIZE + 60 * 7
    assert validate_batch(memoryview(batch), 0, len(batch), MAX_BYTES).record_count == 60


def test_stamping_leaves_the_crc_right() -> None:
    buffer = bytearray(b"xx" + encode_batch(RECORDS))
    before = read_header(buffer, 2)
    stamp(buffer, 2, 2**40, 77)
    after = validate_batch(memoryview(buffer), 2, len(buffer), MAX_BYTES)
    assert after == before._replace(base_offset=2**40, partition_leader_epoch=77)
    assert [record.offset for record in decode_records(memoryview(buffer)[2:], 10_000)] == [
        2**40 + delta for delta in range(5)
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_log_append_time_is_every_records_time(codec: Codec) -> None:
    buffer = bytearray(b"xx" + encode_batch(RECORDS, codec=codec, is_transactional=True) + b"yy")
    stamp_log_append_time(buffer, 2, 1_790_000_000_123)
    header = read_header(buffer, 2)
    assert_crc(buffer, 2)
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.codec is codec
    assert header.base_timestamp == 1000
    times = {record.timestamp_ms for record in decode_records(memoryview(buffer)[2:-2], 10_000)}
    assert times == {1_790_000_000_123}


def test_walking_gives_every_batch_and_its_position() -> None:
    first, second, third = (
        encode_batch(records_of([b"v"] * count, base_offset=count)) for count in (1, 2, 3)
    )
    buffer = b"head" + first + second + third + b"foot"
    walked = list(walk(buffer, 4, len(buffer) - 4, "object"))
    positions = [4, 4 + len(first), 4 + len(first) + len(second)]
    assert walked == [(position, read_header(buffer, position)) for position in positions]
    assert list(walk(buffer, 4, 4, "object")) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (put(">b", 16, 1), "magic 1"),
        (put(">i", 8, 48), "batch length 48"),
        (put(">i", 8, -1), "batch length -1"),
        (put(">i", 8, 2**31 - 1), "cut"),
        (put(">q", 0, -1), "base offset -1"),
        (put(">i", 23, -1), "last offset delta -1"),
        (put(">i", 57, 6), "record count 6"),
        (put(">i", 57, -1), "record count -1"),
    ],
)
def test_walking_stops_at_a_header_that_cannot_be_true(
    change: Callable[[bytearray], None], problem: str
) -> None:
    good = encode_batch(RECORDS)
    buffer = good + batch_with(change)
    walking = walk(buffer, 0, len(buffer), "some object")
    assert next(walking)[0] == 0
    with pytest.raises(CorruptDataError, match=rf"some object: batch at position {len(good)}: .*{problem}"):
        next(walking)


def test_walking_refuses_a_cut_end() -> None:
    good = encode_batch(RECORDS)
    for end in range(len(good) + 1, 2 * len(good)):
        with pytest.raises(CorruptDataError):
            list(walk(good + good, 0, end, "object"))


def test_walking_takes_batches_that_compaction_thinned_out() -> None:
    thinned = encode_batch([RECORDS[0], RECORDS[4]])
    assert [header.record_count for _, header in walk(thinned, 0, len(thinned), "object")] == [2]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressing_a_batch_keeps_everything_else(codec: Codec) -> None:
    batch = memoryview(
        encode_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=10, is_transactional=True)
    )
    header = read_header(batch, 0)
    output = memoryview(bytearray(len(batch)))
    written = compress_into(batch, header, codec, output)
    assert HEADER_SIZE < written < len(batch)
    compressed = validate_batch(output, 0, written, MAX_BYTES)
    assert compressed.size_bytes == written
    assert compressed == header._replace(
        batch_length=written - 12, crc=compressed.crc, attributes=header.attributes | codec
    )
    assert decompress(codec, output[HEADER_SIZE:written], 10_000) == batch[HEADER_SIZE:]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_would_stay_as_long_is_left_as_it_is(codec: Codec) -> None:
    # Longer and longer runs beside what does not compress, until the codec breaks even.
    rough = bytes(range(256))
    values = (rough[:size] + b"a" * run for run in range(60) for size in (40, 41, 42, 43, 50, 60))
    batches = (encode_batch(records_of([value])) for value in values)
    even = next(
        batch for batch in batches if len(compress(codec, batch[HEADER_SIZE:])) == len(batch) - HEADER_SIZE
    )
    output = memoryview(bytearray(len(even)))
    assert compress_into(memoryview(even), read_header(even, 0), codec, output) == 0


@pytest.mark.parametrize("codec", CODECS)
def test_what_need_not_be_compressed_is_not(codec: Codec) -> None:
    small = encode_batch(records_of([b"q"]))
    control = encode_batch(RECORDS, is_control=True)
    for batch in (small, control, *(encode_batch(RECORDS, codec=other) for other in CODECS[1:])):
        output = memoryview(bytearray(len(batch)))
        assert compress_into(memoryview(batch), read_header(batch, 0), codec, output) == 0
    plain = encode_batch(RECORDS)
    output = memoryview(bytearray(len(plain)))
    assert compress_into(memoryview(plain), read_header(plain, 0), Codec.NONE, output) == 0
