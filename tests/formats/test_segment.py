"""Segment files: exact bytes, what is read back, and which faults are found."""

import struct
from pathlib import Path

import pytest

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.object_keys import parse_segment_key
from kafscale.formats.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    MAX_MESSAGE_COUNT,
    body_crc,
    encode_footer,
    encode_header,
    parse_footer,
    parse_header,
)
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import LEADER_EPOCH_POSITION
from kafscale.protocol.records import decode_records
from tests.formats.segments import (
    GOLDEN_BUCKET,
    SAMPLE_BUCKET,
    batch,
    parse_segment,
    segment_of,
    stored_segments,
    verify_segment,
)

NAME = "n/t/0/segment-00000000000000000100.kfs"
BATCHES = [batch(100, 3), batch(103, 2, codec=Codec.ZSTD), batch(110, 1)]
SEGMENT = segment_of(BATCHES)


def patched(position: int, replacement: bytes, data: bytes = SEGMENT) -> bytes:
    position %= len(data)
    return data[:position] + replacement + data[position + len(replacement) :]


def test_the_header_has_the_bytes_of_the_format_page() -> None:
    header = encode_header(
        codec=Codec.LZ4,
        base_offset=0x0102030405060708,
        message_count=0x0A0B0C0D,
        created_ms=0x1112131415161718,
    )
    assert header.hex(" ", 4) == ("4b414653 00010003 01020304 05060708 0a0b0c0d 11121314 15161718 00000000")


def test_the_footer_has_the_bytes_of_the_format_page() -> None:
    footer = encode_footer(body_crc=0xE3069283, last_offset=0x0102030405060708)
    assert footer.hex(" ", 4) == "e3069283 01020304 05060708 454e4421"


def test_the_body_crc_is_crc32c_of_the_joined_parts() -> None:
    # The check value of CRC-32C (Castagnoli) in the catalogue of CRCs.
    assert body_crc([b"123456789"]) == 0xE3069283
    assert body_crc([b"1234", b"", bytearray(b"5"), memoryview(b"6789")]) == 0xE3069283
    assert body_crc([]) == 0


@pytest.mark.parametrize(
    ("codec", "flags"),
    [(Codec.NONE, 0), (Codec.SNAPPY, 1), (Codec.GZIP, 2), (Codec.LZ4, 3), (Codec.ZSTD, 4)],
)
def test_the_flags_number_codecs_in_the_formats_own_way(codec: Codec, flags: int) -> None:
    header = encode_header(codec=codec, base_offset=0, message_count=1, created_ms=0)
    assert header[6:8] == flags.to_bytes(2, "big")
    assert parse_header(NAME, header).codec is codec


@pytest.mark.parametrize("count", [-1, MAX_MESSAGE_COUNT + 1])
def test_a_message_count_that_does_not_fit_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="messages"):
        encode_header(codec=Codec.NONE, base_offset=0, message_count=count, created_ms=0)


def test_a_segment_is_read_back_as_it_was_written() -> None:
    segment = parse_segment(NAME, segment_of(BATCHES, codec=Codec.SNAPPY, created_ms=1_790_000_000_000))
    assert (segment.base_offset, segment.last_offset) == (100, 110)
    assert (segment.header.message_count, segment.header.created_ms) == (6, 1_790_000_000_000)
    assert segment.header.codec is Codec.SNAPPY
    assert segment.body == b"".join(BATCHES)
    assert segment.data[segment.body_end :] == segment_of(BATCHES)[-FOOTER_SIZE:]


def test_verifying_returns_where_the_batches_are() -> None:
    verified = verify_segment(parse_segment(NAME, SEGMENT))
    positions = [
        HEADER_SIZE,
        HEADER_SIZE + len(BATCHES[0]),
        HEADER_SIZE + len(BATCHES[0]) + len(BATCHES[1]),
    ]
    assert [position for position, _ in verified] == positions
    assert [header.base_offset for _, header in verified] == [100, 103, 110]


def test_gaps_between_batches_are_legal() -> None:
    verify_segment(parse_segment(NAME, segment_of([batch(5, 1), batch(500, 1)])))


def test_flags_and_reserved_bytes_are_not_looked_at() -> None:
    data = patched(28, b"\xff\xff\xff\xff", patched(6, b"\xff\xff"))
    segment = parse_segment(NAME, data)
    assert segment.header.codec is None
    verify_segment(segment)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "shorter than a segment header"),
        (SEGMENT[: HEADER_SIZE - 1], "shorter than a segment header"),
        (SEGMENT[:HEADER_SIZE] + SEGMENT[1 - FOOTER_SIZE :], "too few"),
        (patched(0, b"KAFT"), "starts with"),
        (patched(-1, b"?"), "ends with"),
        (SEGMENT[:-1], "ends with"),
        (SEGMENT + b"\0", "ends with"),
        (patched(8, b"\xff"), "negative"),
        (patched(16, b"\xff"), "negative"),
        (patched(-12, struct.pack(">q", 99)), "header and footer say 6 at 100 to 99"),
        (patched(-12, b"\xff"), "header and footer say"),
        (patched(16, struct.pack(">i", 12)), "header and footer say 12"),
    ],
)
def test_a_broken_header_or_footer_is_refused_by_name(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=problem) as caught:
        verify_segment(parse_segment(NAME, data))
    assert caught.value.name == NAME


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_an_unknown_version_is_refused_by_name_and_number(version: int) -> None:
    with pytest.raises(UnknownFormatVersionError, match=str(version)) as caught:
        parse_segment(NAME, patched(4, struct.pack(">H", version)))
    assert (caught.value.name, caught.value.version) == (NAME, version)


def test_a_footer_is_read_alone() -> None:
    assert parse_footer(NAME, SEGMENT[-FOOTER_SIZE:]).last_offset == 110
    with pytest.raises(CorruptDataError, match="shorter than a segment footer"):
        parse_footer(NAME, SEGMENT[-FOOTER_SIZE + 1 :])


def resealed(body: bytes, *, base_offset: int = 100, count: int = 6, last_offset: int = 110) -> bytes:
    """A segment whose own CRC is right whatever the body holds."""
    return b"".join(
        (
            encode_header(codec=Codec.NONE, base_offset=base_offset, message_count=count, created_ms=0),
            body,
            encode_footer(body_crc=body_crc([body]), last_offset=last_offset),
        )
    )


BODY = b"".join(BATCHES)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (patched(HEADER_SIZE + 70, b"\0\0"), "batch at position 32: CRC-32C is"),
        (patched(HEADER_SIZE + LEADER_EPOCH_POSITION, b"\1"), "the body's CRC-32C is"),
        (patched(-FOOTER_SIZE, b"\0\0\0\0"), "the body's CRC-32C is"),
        (resealed(patched(70, b"\0\0", BODY)), "batch at position 32: CRC-32C is"),
        (resealed(BODY[:-1]), "batch at position"),
        (resealed(BODY + b"\0"), "header"),
        (resealed(b""), "without a batch"),
        (resealed(BODY, count=5), "6 records"),
        (resealed(BODY, base_offset=99), "offsets 100 to 110"),
        (resealed(BODY, last_offset=111), "offsets 100 to 110"),
        (resealed(BATCHES[1] + BATCHES[0] + BATCHES[2], base_offset=100), "base offset 100 is before 105"),
        (resealed(BATCHES[0] + BATCHES[0] + BATCHES[2]), "base offset 100 is before 103"),
    ],
)
def test_a_broken_body_is_refused_by_name(data: bytes, problem: str) -> None:
    segment = parse_segment(NAME, data)
    with pytest.raises(CorruptDataError, match=problem) as caught:
        verify_segment(segment)
    assert caught.value.name == NAME


def assert_bucket_is_sound(bucket: Path, segments_per_topic: dict[str, tuple[int, int]]) -> None:
    """Verify every segment; per topic, count the segments and the records."""
    found: dict[str, tuple[int, int]] = {}
    for name, data, _ in stored_segments(bucket):
        key = parse_segment_key(name)
        assert key is not None
        segment = parse_segment(name, data)
        batches = verify_segment(segment)
        assert segment.base_offset == key.base_offset
        records = [
            record
            for position, _ in batches
            for record in decode_records(segment.data[position : segment.body_end], 2**20)
        ]
        assert [record.offset for record in records] == list(
            range(segment.base_offset, segment.last_offset + 1)
        )
        segments, count = found.get(key.topic, (0, 0))
        found[key.topic] = (segments + 1, count + len(records))
    assert found == segments_per_topic


def test_golden_segments_of_another_writer_are_sound() -> None:
    assert_bucket_is_sound(GOLDEN_BUCKET, {"orders": (2, 70), "java-snappy": (1, 22), "java-zstd": (1, 22)})


def test_a_whole_bucket_of_another_writer_is_sound() -> None:
    if not SAMPLE_BUCKET.is_dir():
        pytest.skip(f"the samples are not beside the repository: {SAMPLE_BUCKET}")
    assert_bucket_is_sound(
        SAMPLE_BUCKET, {"orders": (2, 70), "java-snappy": (28, 600), "java-zstd": (28, 600)}
    )


def test_segment_of_another_writer_is_reproduced_exactly() -> None:
    for name, data, _ in stored_segments(GOLDEN_BUCKET):
        segment = parse_segment(name, data)
        header, footer = segment.header, segment.footer
        assert header.codec is Codec.NONE
        again = (
            encode_header(
                codec=header.codec,
                base_offset=header.base_offset,
                message_count=header.message_count,
                created_ms=header.created_ms,
            ),
            segment.body,
            encode_footer(body_crc=body_crc([segment.body]), last_offset=footer.last_offset),
        )
        assert b"".join(again) == data
