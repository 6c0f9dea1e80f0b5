"""A dump's findings in sound and in lying indexes of both versions, alone and beside their segment."""

import struct

import pytest

from kafscale.formats.index import LARGE_VERSION, LEGACY_VERSION, build_index
from kafscale.formats.object_keys import parse_index_key
from kafscale.protocol.record_batch import read_header
from kafscale.tools.dump.findings import Finding, FoundEntry, FoundIndexHeader, Look
from tests.formats.segments import SAMPLE_BUCKET, batch, segment_of, stored_segments
from tests.tools.dump.sources import VERIFY, notes, problems, walk_index

BATCHES = [batch(1000 + number * 10, 4) for number in range(30)]
SEGMENT = segment_of(BATCHES)
SIZE = len(BATCHES[0])
LAID = [
    (header.base_offset, 32 + number * SIZE, header.record_count)
    for number, header in enumerate(read_header(data, 0) for data in BATCHES)
]
KEY = parse_index_key("n/t/0/segment-00000000000000001000.index")
VERSIONS = pytest.mark.parametrize("version", [LEGACY_VERSION, LARGE_VERSION])


def entries_in(findings: list[Finding]) -> list[tuple[int, int]]:
    return [(found.offset, found.position) for found in findings if isinstance(found, FoundEntry)]


def lying(version: int, *entries: tuple[int, int], interval: int = 1) -> bytes:
    """An index with any entries whatever, absolute offsets in both versions."""
    data = struct.pack(">4sHIIH", b"IDX\0", version, len(entries), interval, 0)
    for offset, position in entries:
        fields = (offset, position) if version == LEGACY_VERSION else (offset - 1000, position)
        data += struct.pack(">qi" if version == LEGACY_VERSION else ">iq", *fields)
    return data


@VERSIONS
@pytest.mark.parametrize("interval", [1, 4, 5, 100])
def test_a_sound_index_is_shown_with_absolute_offsets(version: int, interval: int) -> None:
    data = build_index(LAID, interval, version=version)
    for findings in (walk_index(data, segment=SEGMENT), walk_index(data, Look(), key=KEY)):
        header = findings[0]
        assert isinstance(header, FoundIndexHeader)
        assert (header.version, header.interval, header.base_offset) == (version, interval, 1000)
        assert header.entry_count == len(entries_in(findings)) == (len(data) - 16) // 12
        assert set(entries_in(findings)) <= {(offset, position) for offset, position, _ in LAID}
        assert problems(findings) == [] == notes(findings)


def test_an_index_of_version_2_alone_has_relative_offsets() -> None:
    findings = walk_index(build_index(LAID, 1, version=LARGE_VERSION), Look())
    assert entries_in(findings) == [(offset - 1000, position) for offset, position, _ in LAID]
    assert {found.is_relative for found in findings if isinstance(found, FoundEntry)} == {True}
    assert problems(findings) == []


def test_index_without_its_segment_is_not_compared() -> None:
    findings = walk_index(build_index(LAID), VERIFY)
    assert notes(findings) == ["there is no segment beside it: its entries are not compared with the batches"]
    assert problems(findings) == []


def test_indexes_of_another_writer_agree_with_their_segments() -> None:
    for key, segment, index in stored_segments(SAMPLE_BUCKET):
        findings = walk_index(index, segment=segment, key=parse_index_key(key.replace(".kfs", ".index")))
        assert problems(findings) == []


@VERSIONS
@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([(1000, 32), (1010, 33)], f"no batch starts there; the nearest start at 32 and {32 + SIZE}"),
        ([(1000, 32), (1011, 32 + SIZE)], "the batch there has the base offset 1010"),
        ([(1000, 32), (1010, 1_000_000)], "no batch starts there; the last one starts at"),
        ([(1000, 32), (1010, 32)], "it is not after the one before it"),
        ([(1000, 32), (1000, 32 + SIZE)], "it is not after the one before it"),
        ([(1000, 32), (1010, -5)], "it is not after the one before it"),
        ([(1010, 32 + SIZE)], "the first entry is not that of the first offset, 1000"),
        ([(1000, 40)], "the first batch is at position 32"),
        ([(1000, 32)], "29 entries are missing, the first for the batch at position"),
    ],
)
def test_an_entry_that_lies_is_named(version: int, entries: list[tuple[int, int]], says: str) -> None:
    told = problems(walk_index(lying(version, *entries), segment=SEGMENT))
    assert [text for text in told if says in text], told


def test_more_entries_than_are_due_are_no_fault() -> None:
    entries = [(offset, position) for offset, position, _ in LAID]
    assert problems(walk_index(lying(1, *entries, interval=100), segment=SEGMENT)) == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes are shorter than an index header's 16"),
        (b"IDX\0", "4 bytes are shorter than"),
        (b"JDX" + build_index(LAID)[3:], "an index starts with"),
        (build_index(LAID)[:5] + b"\x09" + build_index(LAID)[6:], "format version 9 is not known"),
        (build_index(LAID)[:-1], "2 entries do not fill the 23 bytes after the header"),
        (
            build_index(LAID)[:6] + b"\xff\xff\xff\xff" + build_index(LAID)[10:],
            "4294967295 entries do not fill",
        ),
        (lying(1), "an index without an entry"),
        (lying(2, (1000, 32), (1010, 2**62)), "no batch starts there"),
    ],
)
def test_a_damaged_index_is_shown_as_far_as_it_goes(data: bytes, says: str) -> None:
    told = problems(walk_index(data, segment=SEGMENT))
    assert [text for text in told if says in text], told


def test_a_damaged_segment_beside_it_is_reported() -> None:
    index = build_index(LAID, 1)
    assert "not compared" in problems(walk_index(index, segment=b"junk"))[0]
    broken = bytearray(SEGMENT)
    broken[32 + 5 * SIZE + 16] = 9
    told = problems(walk_index(index, segment=bytes(broken)))
    assert told == [
        f"compared with a part of its batches only: segment: batch at position {32 + 5 * SIZE}: magic 9 is not 2"
    ]


@VERSIONS
def test_part_begins_with_last_entry_up_to_the_offset(version: int) -> None:
    data = build_index(LAID, 1, version=version)
    for wanted, first in [(1000, 0), (1009, 0), (1010, 1), (1299, 29), (0, 0), (10**6, 29)]:
        found = entries_in(walk_index(data, Look(from_offset=wanted, verify=True), segment=SEGMENT))
        assert found == [(offset, position) for offset, position, _ in LAID[first:]]
    part = walk_index(data, Look(from_offset=1105, max_batches=2, verify=True), segment=SEGMENT)
    assert [offset for offset, _ in entries_in(part)] == [1100, 1110]
    assert problems(part) == []
