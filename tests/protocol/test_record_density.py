"""Which record counts of compressed batches are believed, refused at sight, and counted."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.protocol.compression import CODECS, Codec, compress
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import InvalidBatchError, read_header, write_crc
from kafscale.protocol.record_builder import RecordBatchBuilder, encode_batch
from kafscale.protocol.record_density import check_claim, claims_unlikely_count, count_records
from kafscale.protocol.records import Record

LIMIT_BYTES = 1 << 20
MOST = 2**31 - 1
COMPRESSED = [codec for codec in CODECS if codec]
SMALLEST = b"\x0c\x00\x00\x00\x01\x01\x00"


def claiming(count: int, records: bytes, codec: Codec) -> memoryview:
    batch = bytearray(encode_batch([Record(0, 0, None, None)])[:61] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch, 0)
    return memoryview(batch)


def refusal_at_sight(batch: memoryview, limit_bytes: int = LIMIT_BYTES) -> ErrorCode:
    with pytest.raises(InvalidBatchError) as refused:
        check_claim(read_header(batch, 0), limit_bytes)
    return refused.value.code


def refusal(batch: memoryview, limit_bytes: int = LIMIT_BYTES) -> ErrorCode:
    with pytest.raises(InvalidBatchError) as refused:
        count_records(batch, read_header(batch, 0), limit_bytes)
    return refused.value.code


@pytest.mark.parametrize("codec", CODECS)
def test_dense_but_ordinary_batch_is_believed(codec: Codec) -> None:
    """Records that differ in nothing but their offsets."""
    builder = RecordBatchBuilder()
    for _ in range(20_000):
        builder.append(1000, None, None)
    batch = builder.build(codec=codec)
    assert not claims_unlikely_count(read_header(batch, 0))
    if codec:
        check_claim(read_header(batch, 0), LIMIT_BYTES)
        count_records(memoryview(batch), read_header(batch, 0), LIMIT_BYTES)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_largest_claim_is_refused_at_sight(codec: Codec) -> None:
    batch = claiming(MOST, compress(codec, bytes(100)), codec)
    assert claims_unlikely_count(read_header(batch, 0))
    assert refusal_at_sight(batch) is ErrorCode.INVALID_RECORD


def test_claim_beyond_what_is_opened_is_too_large_at_sight() -> None:
    batch = claiming(200_000, bytes(1000), Codec.ZSTD)
    check_claim(read_header(batch, 0), 7 * 200_000)
    assert refusal_at_sight(batch, 7 * 200_000 - 1) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("lie", [-1, 1, 1000])
def test_batch_of_another_count_is_refused(codec: Codec, lie: int) -> None:
    records = compress(codec, SMALLEST * 10_000)
    count_records(claiming(10_000, records, codec), read_header(claiming(10_000, records, codec), 0), 70_000)
    assert refusal(claiming(10_000 + lie, records, codec)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"noise", ErrorCode.INVALID_RECORD),
        (compress(Codec.ZSTD, bytes(LIMIT_BYTES + 1)), ErrorCode.MESSAGE_TOO_LARGE),
        (compress(Codec.ZSTD, SMALLEST * 99 + SMALLEST[:-1]), ErrorCode.INVALID_RECORD),
        (compress(Codec.ZSTD, SMALLEST * 99 + b"\xff" * 7), ErrorCode.INVALID_RECORD),
        (compress(Codec.ZSTD, SMALLEST * 99 + b"\x80"), ErrorCode.INVALID_RECORD),
        (compress(Codec.ZSTD, SMALLEST * 99 + b"\x0d" + SMALLEST[1:]), ErrorCode.INVALID_RECORD),
        (compress(Codec.ZSTD, b"\x01" * 100), ErrorCode.INVALID_RECORD),
    ],
    ids=["noise", "bomb", "cut", "endless length", "cut length", "negative length", "no records"],
)
def test_batch_without_whole_records_is_refused(records: bytes, code: ErrorCode) -> None:
    assert refusal(claiming(100, records, Codec.ZSTD)) is code


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=40), st.sampled_from(COMPRESSED))
def test_every_honest_batch_has_its_count(values: list[bytes], codec: Codec) -> None:
    batch = memoryview(
        encode_batch(
            [Record(offset, offset, b"key", value) for offset, value in enumerate(values)], codec=codec
        )
    )
    header = read_header(batch, 0)
    check_claim(header, LIMIT_BYTES)
    count_records(batch, header, LIMIT_BYTES)
