"""A dump's findings in sound and in damaged segments."""

from collections.abc import Sequence

import pytest

from kafscale.formats.index import LARGE_VERSION, build_index
from kafscale.formats.object_keys import parse_segment_key
from kafscale.formats.segment import encode_footer, encode_header
from kafscale.protocol.compression import Codec
from kafscale.protocol.control_records import ControlRecord
from kafscale.protocol.record_batch import LENGTH_POSITION, read_header, write_crc
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from kafscale.tools.dump.findings import (
    Finding,
    FoundBatch,
    FoundRecord,
    FoundSegmentFooter,
    FoundSegmentHeader,
    Look,
)
from kafscale.tools.dump.piece_reader import MAX_PIECE_BYTES, PieceReader
from kafscale.tools.dump.segment_walk import SegmentWalk
from tests.formats.segments import SAMPLE_BUCKET, batch, segment_of, stored_segments
from tests.tools.dump.sources import EVERYTHING, VERIFY, MadeSource, notes, problems, walk_segment

BATCHES = [
    batch(100, 3),
    batch(103, 2, codec=Codec.GZIP),
    batch(105, 1, codec=Codec.SNAPPY),
    batch(110, 4, codec=Codec.LZ4),
    batch(114, 2, codec=Codec.ZSTD),
]
SEGMENT = segment_of(BATCHES)
POSITIONS = [32 + sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]
INDEX_ENTRIES = [
    (header.base_offset, position, header.record_count)
    for position, header in zip(POSITIONS, (read_header(data, 0) for data in BATCHES), strict=True)
]
INDEX = build_index(INDEX_ENTRIES, 1)


def patched(position: int, replacement: bytes, data: bytes = SEGMENT) -> bytes:
    position %= len(data)
    return data[:position] + replacement + data[position + len(replacement) :]


def batches_in(findings: Sequence[Finding]) -> list[FoundBatch]:
    return [finding for finding in findings if isinstance(finding, FoundBatch)]


def test_a_sound_segment_is_shown_in_the_order_of_the_file() -> None:
    findings = walk_segment(SEGMENT)
    assert problems(findings) == [] == notes(findings)
    header, *batches, footer = findings
    assert isinstance(header, FoundSegmentHeader) and header.size_bytes == len(SEGMENT)
    assert header.header.base_offset == 100
    assert [(found.position, found.is_valid) for found in batches_in(batches)] == [
        (position, True) for position in POSITIONS
    ]
    assert isinstance(footer, FoundSegmentFooter) and footer.is_valid is True
    assert footer.footer.last_offset == 115


def test_without_verify_nothing_is_said_of_checksums() -> None:
    findings = walk_segment(SEGMENT, Look())
    assert {found.is_valid for found in batches_in(findings)} == {None}
    assert isinstance(findings[-1], FoundSegmentFooter) and findings[-1].is_valid is None


def test_records_of_every_codec_are_shown() -> None:
    findings = walk_segment(SEGMENT, Look(records=True))
    records = [finding.record for finding in findings if isinstance(finding, FoundRecord)]
    assert [record.offset for record in records] == [*range(100, 106), *range(110, 116)]
    assert {record.value for record in records} == {b"%d" % record.offset * 20 for record in records}
    assert {found.is_valid for found in batches_in(findings)} == {True}


def test_control_records_say_what_they_are() -> None:
    marker = encode_batch(
        [Record(0, 5, b"\0\0\0\1", b"\0\0\0\0\0\7")], is_control=True, is_transactional=True, producer_id=9
    )
    broken = encode_batch([Record(1, 5, b"\0", b"")], is_control=True)
    findings = walk_segment(segment_of([marker, broken]), EVERYTHING)
    assert [finding.control for finding in findings if isinstance(finding, FoundRecord)] == [
        ControlRecord(1, 7)
    ]
    assert problems(findings)[0].startswith("batch at position 110: control record: its key or value")


def test_segments_of_another_writer_are_sound() -> None:
    count = 0
    for key, data, _ in stored_segments(SAMPLE_BUCKET):
        findings = walk_segment(data, EVERYTHING, key=parse_segment_key(key))
        assert problems(findings) == []
        count += sum(isinstance(finding, FoundRecord) for finding in findings)
    assert count == 70 + 600 + 600


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(patched(0, b"X"), "header: a segment starts with", id="magic"),
        pytest.param(patched(15, b"\x63"), "the first offset is 100, the header says 99", id="base offset"),
        pytest.param(patched(19, b"\x63"), "the batches hold 12 records, the header says 99", id="count"),
        pytest.param(patched(-5, b"\x63"), "the last offset is 115, the footer says 99", id="last offset"),
        pytest.param(patched(-16, b"\0\0\0\0"), "footer: the body's CRC-32C is", id="body CRC"),
        pytest.param(patched(-1, b"?"), "footer: a segment ends with", id="footer magic"),
        pytest.param(SEGMENT[:-16], "footer: a segment ends with", id="no footer"),
        pytest.param(SEGMENT[:40], "footer: 40 bytes are too few", id="only a header"),
        pytest.param(b"", "header: 0 bytes are shorter than", id="empty"),
        pytest.param(patched(5, b"\7"), "format version 7 is not known (known: 1)", id="version"),
        pytest.param(patched(32 + 30, b"?"), "batch at position 32: CRC-32C is", id="batch"),
        pytest.param(patched(32 + 16, b"\1"), "batch at position 32: magic 1 is not 2", id="batch magic"),
        pytest.param(segment_of(BATCHES[::-1]), "is not after 115", id="order"),
        pytest.param(
            encode_header(codec=Codec.NONE, base_offset=0, message_count=0, created_ms=0)
            + encode_footer(body_crc=0, last_offset=0),
            "a segment without a batch",
            id="no batch",
        ),
    ],
)
def test_what_is_wrong_is_named(data: bytes, says: str) -> None:
    told = problems(walk_segment(data))
    assert [text for text in told if says in text], told


def test_a_damaged_batch_does_not_hide_the_next_ones() -> None:
    findings = walk_segment(patched(POSITIONS[1] + 70, b"?"), EVERYTHING)
    assert [found.is_valid for found in batches_in(findings)] == [True, False, True, True, True]
    offsets = [finding.record.offset for finding in findings if isinstance(finding, FoundRecord)]
    assert offsets == [100, 101, 102, 105, 110, 111, 112, 113, 114, 115]


def test_broken_chain_is_reported_and_the_footer_still_read() -> None:
    findings = walk_segment(patched(POSITIONS[2] + LENGTH_POSITION, b"\x7f\xff\xff\xff"))
    assert len(batches_in(findings)) == 2
    assert problems(findings)[0].startswith(f"batch at position {POSITIONS[2]}: its 2147483659 bytes are cut")
    assert isinstance(findings[-2], FoundSegmentFooter) and findings[-2].is_valid is False


def test_a_cut_file_is_shown_up_to_the_last_whole_batch() -> None:
    findings = walk_segment(SEGMENT[: POSITIONS[3] + 80])
    assert len(batches_in(findings)) == 3
    assert problems(findings)[0].startswith(f"batch at position {POSITIONS[3]}: its ")


def test_a_name_that_is_not_the_segments_is_reported() -> None:
    named = parse_segment_key("n/t/0/segment-00000000000000000099-00000000000000000114.kfs")
    assert problems(walk_segment(SEGMENT, key=named)) == [
        "the first offset is 100, the file's name says 99",
        "the last offset is 115, the file's name says 114",
    ]


def test_a_codec_that_does_not_exist_is_reported() -> None:
    data = bytearray(BATCHES[0])
    data[22] |= 7
    write_crc(data, 0)
    findings = walk_segment(segment_of([bytes(data)]), EVERYTHING)
    assert "batch at position 32: compression codec 7 is not one of 0 to 4" in problems(findings)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_not_unpacked(codec: Codec) -> None:
    bomb = encode_batch([Record(0, 1, None, bytes(1_000_000))], codec=codec)
    findings = walk_segment(segment_of([bomb]), EVERYTHING, max_records_bytes=100_000)
    [problem] = problems(findings)
    assert problem.startswith("batch at position 32: ")
    assert "decompresses to more than 100000 bytes" in problem
    assert batches_in(findings)[0].is_valid


def test_records_too_large_as_stored_are_not_shown() -> None:
    findings = walk_segment(SEGMENT, EVERYTHING, max_records_bytes=100)
    assert problems(findings)[0] == (
        f"batch at position 32: its {len(BATCHES[0])} bytes are more than 100: records are not shown"
    )
    assert {found.is_valid for found in batches_in(findings)} == {True}


def test_a_part_begins_with_the_batch_that_holds_the_offset() -> None:
    for index in (None, INDEX, build_index(INDEX_ENTRIES, 1, version=LARGE_VERSION)):
        findings = walk_segment(SEGMENT, Look(from_offset=104, max_batches=2, verify=True), index=index)
        assert [found.header.base_offset for found in batches_in(findings)] == [103, 105]
        assert problems(findings) == [] == notes(findings)
    findings = walk_segment(SEGMENT, Look(from_offset=107))
    assert batches_in(findings)[0].header.base_offset == 110
    assert notes(walk_segment(SEGMENT, Look(from_offset=200))) == ["no batch holds offset 200 or a later one"]


@pytest.mark.parametrize(
    ("index", "says"),
    [
        (b"", "0 bytes are shorter than"),
        (INDEX[:16], "an index without an entry"),
        (patched(0, b"?", INDEX), "an index starts with"),
        (patched(-1, b"\xff", INDEX), "no sound batch with that base offset"),
        (patched(-4, b"\x7f", INDEX), "no sound batch with that base offset"),
        (build_index([(100, 32, 1), (105, POSITIONS[1], 1)], 1), "it says that offset 105 is at position"),
    ],
)
def test_an_index_that_lies_is_reported_and_not_followed(index: bytes, says: str) -> None:
    findings = walk_segment(SEGMENT, Look(from_offset=115), index=index)
    assert [found.header.base_offset for found in batches_in(findings)] == [114]
    [told] = notes(findings)
    assert told.startswith("the index index is not used: ")
    assert says in told


def test_an_index_is_not_followed_to_a_damaged_batch() -> None:
    findings = walk_segment(patched(POSITIONS[4] + 70, b"?"), Look(from_offset=115, verify=True), index=INDEX)
    assert [found.is_valid for found in batches_in(findings)] == [False]
    assert len(notes(findings)) == 1


def test_the_index_leads_behind_a_broken_header() -> None:
    broken = patched(POSITIONS[1] + LENGTH_POSITION, b"\xff")
    assert len(batches_in(walk_segment(broken, Look()))) == 1
    findings = walk_segment(broken, Look(from_offset=105, verify=True), index=INDEX)
    assert [found.header.base_offset for found in batches_in(findings)] == [105, 110, 114]
    assert problems(findings) == []


def test_a_segment_beyond_2_gib_is_walked_in_bounded_memory() -> None:
    """Three batches of 1 GiB of zeros each: its headers alone, then every byte."""
    size = 2**30
    zeros = bytes(MAX_PIECE_BYTES)
    headers = []
    for number in range(3):
        header = bytearray(batch(number * 10, 1)[:61])
        header[LENGTH_POSITION : LENGTH_POSITION + 4] = (size - 12).to_bytes(4, "big")
        headers.append(bytes(header))
    start = encode_header(codec=Codec.NONE, base_offset=0, message_count=3, created_ms=0)
    known = {0: start} | {32 + number * size: data for number, data in enumerate(headers)}
    known[32 + 3 * size] = encode_footer(body_crc=0, last_offset=20)

    def make(position: int, length: int) -> bytes:
        data = bytearray(zeros[:length])
        for at, piece in known.items():
            low, high = max(at, position), min(at + len(piece), position + length)
            if low < high:
                data[low - position : high - position] = piece[low - at : high - at]
        return bytes(data)

    source = MadeSource(32 + 3 * size + 16, make)
    findings = list(SegmentWalk(PieceReader(source), Look()).findings())
    assert problems(findings) == []
    assert [found.position for found in batches_in(findings)] == [32, 32 + size, 32 + 2 * size]
    assert source.bytes_read < 2**20

    verified = list(SegmentWalk(PieceReader(source), VERIFY).findings())
    assert len(problems(verified)) == 4  # the zeros are nobody's CRC
    assert source.longest_read <= MAX_PIECE_BYTES
