"""Damage and noise: a batch that was changed anywhere is refused, and nothing but the declared errors comes out."""

import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import CODECS, Codec, decompress
from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.record_batch import (
    HEADER_SIZE,
    InvalidBatchError,
    compress_into,
    read_header,
    validate_batch,
    walk,
    write_crc,
)
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import (
    Record,
    decode_records,
    first_record_at_or_after,
    record_with_max_timestamp,
)
from tests.support.nightly import by_day

LIMIT_BYTES = 200_000
MAX_BYTES = 1_048_588
# Base offset, length and leader epoch: the bytes before the magic, which the CRC does not cover.
UNCOVERED_BYTES = 16

ONE_RECORD = encode_batch([Record(0, 0, None, b"x")])
VALUES = st.lists(st.none() | st.binary(max_size=200), min_size=1, max_size=12)
CODEC = st.sampled_from(CODECS)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    records = [
        Record(offset, draw(st.integers(0, 2**41)), draw(st.none() | st.binary(max_size=20)), value)
        for offset, value in enumerate(draw(VALUES))
    ]
    return encode_batch(records, codec=draw(CODEC), producer_id=draw(st.integers(-1, 5)), base_sequence=9)


@given(batch=batches(), data=st.data())
@settings(max_examples=by_day(40, by_night=3_000))
def test_any_flipped_bit_is_noticed(batch: bytes, data: st.DataObject) -> None:
    validate_batch(memoryview(batch), 0, len(batch), MAX_BYTES)
    bit = data.draw(st.integers(UNCOVERED_BYTES * 8, len(batch) * 8 - 1))
    damaged = bytearray(batch)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidBatchError):
        validate_batch(memoryview(damaged), 0, len(damaged), MAX_BYTES)


@given(batch=batches(), length=st.integers(-(2**31), 2**31 - 1))
@example(batch=ONE_RECORD, length=read_header(ONE_RECORD, 0).batch_length)
def test_any_length_is_wrong_where_bytes_follow(batch: bytes, length: int) -> None:
    damaged = bytearray(batch + bytes(50))
    damaged[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidBatchError):
        validate_batch(memoryview(damaged), 0, len(damaged), MAX_BYTES)


@given(
    batch=batches(), damage=st.dictionaries(st.integers(0, 400), st.integers(0, 255), min_size=1, max_size=8)
)
@settings(max_examples=by_day(40, by_night=3_000))
def test_damaged_batch_with_fitting_crc_raises_declared_errors(batch: bytes, damage: dict[int, int]) -> None:
    damaged = bytearray(batch)
    for position, byte in damage.items():
        damaged[position % len(damaged)] = byte
    damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
    damaged[16] = 2
    write_crc(damaged, 0)
    view = memoryview(damaged)
    try:
        header = validate_batch(view, 0, len(view), MAX_BYTES)
    except InvalidBatchError:
        return
    tracemalloc.start()
    try:
        records = decode_records(view, LIMIT_BYTES)
        assert len(records) == header.record_count
        assert all(header.base_offset <= record.offset <= header.last_offset for record in records)
        latest = max(record.timestamp_ms for record in records)
        assert record_with_max_timestamp(view, LIMIT_BYTES) in [(r.offset, latest) for r in records]
        assert first_record_at_or_after(view, latest + 1, LIMIT_BYTES) is None
    except CorruptDataError:
        pass
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < 10 * LIMIT_BYTES


NOISE = st.binary(max_size=400)


@given(noise=NOISE, position=st.integers(0, 20))
@settings(max_examples=by_day(40, by_night=3_000))
def test_noise_is_no_batch(noise: bytes, position: int) -> None:
    view = memoryview(noise)
    with pytest.raises(InvalidBatchError):
        validate_batch(view, min(position, len(view)), len(view), MAX_BYTES)


@given(noise=NOISE, batch=batches())
def test_walking_over_noise_ends(noise: bytes, batch: bytes) -> None:
    data = batch + noise
    walked = []
    try:
        for position, header in walk(data, 0, len(data), "noise"):
            walked.append(position)
            assert position + header.size_bytes <= len(data)
    except CorruptDataError:
        pass
    assert walked[0] == 0
    assert walked == sorted(set(walked))


@given(codec=CODEC, noise=NOISE, batch=batches(), magic=st.sampled_from([0, 2]))
@settings(max_examples=by_day(40, by_night=3_000))
def test_decompressing_noise_raises_only_what_is_declared(
    codec: Codec, noise: bytes, batch: bytes, magic: int
) -> None:
    for data in (noise, batch[HEADER_SIZE:] + noise, batch[HEADER_SIZE : HEADER_SIZE + 20] + noise):
        try:
            assert len(decompress(codec, data, 300, magic=magic)) <= 300
        except CorruptDataError:
            continue


@given(noise=NOISE, magic=st.sampled_from([0, 1]))
@settings(max_examples=by_day(40, by_night=3_000))
def test_a_message_set_of_noise_is_refused(noise: bytes, magic: int) -> None:
    looks_right = (
        noise[:8] + (len(noise) - 12).to_bytes(4, "big", signed=True) + noise[12:16] + bytes([magic])
    )
    for data in (noise, looks_right + noise[17:]):
        with pytest.raises(InvalidBatchError):
            convert_message_set(memoryview(data), LIMIT_BYTES, LIMIT_BYTES)


@given(batch=batches(), codec=CODEC)
def test_a_compressed_batch_has_the_same_records(batch: bytes, codec: Codec) -> None:
    view, header = memoryview(batch), read_header(batch, 0)
    output = memoryview(bytearray(len(batch)))
    written = compress_into(view, header, codec, output)
    if written:
        assert written < len(batch)
        assert validate_batch(output, 0, written, MAX_BYTES).codec is codec
        assert decode_records(output[:written], LIMIT_BYTES) == decode_records(view, LIMIT_BYTES)
