"""Sparse indexes: exact bytes, look-ups, which faults are found, and both versions read."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.index import (
    LARGE_VERSION,
    MAX_LEGACY_POSITION,
    MAX_RELATIVE_OFFSET,
    IndexOffsetError,
    IndexPositionError,
    SparseIndex,
    build_index,
    index_version_at,
    interval_for,
    parse_index,
)
from kafscale.formats.object_keys import index_key_of
from tests.formats.segments import GOLDEN_BUCKET, SAMPLE_BUCKET, parse_segment, stored_segments

NAME = "n/t/0/segment-00000000000000001000.index"


def stored(entries: Sequence[tuple[int, int]], *, version: int = 1, count: int | None = None) -> bytes:
    """An index file, put together by hand."""
    header = struct.pack(">4sHIIH", b"IDX\0", version, len(entries) if count is None else count, 100, 0)
    return header + b"".join(struct.pack(">qi" if version == 1 else ">iq", *entry) for entry in entries)


def entries_of(index: SparseIndex) -> list[tuple[int, int]]:
    return list(zip(index.offsets, index.positions, strict=True))


def test_an_index_has_the_bytes_of_the_format_page() -> None:
    data = build_index([(0x0102030405060708, 32, 100), (0x0102030405060808, 0x0A0B0C0D, 1)])
    assert data.hex(" ") == (
        "49 44 58 00 00 01 00 00 00 02 00 00 00 64 00 00 "
        "01 02 03 04 05 06 07 08 00 00 00 20 01 02 03 04 05 06 08 08 0a 0b 0c 0d"
    )


def test_an_index_of_version_2_has_the_bytes_of_the_format_page() -> None:
    batches = [(0x0102030405060708, 32, 100), (0x0102030405060808, 0x0A0B0C0D0E, 1)]
    assert build_index(batches, version=LARGE_VERSION).hex(" ") == (
        "49 44 58 00 00 02 00 00 00 02 00 00 00 64 00 00 "
        "00 00 00 00 00 00 00 00 00 00 00 20 00 00 01 00 00 00 00 0a 0b 0c 0d 0e"
    )


@pytest.mark.parametrize(
    ("counts", "indexed"),
    [
        ([1], [0]),
        ([1000], [0]),
        ([99, 1, 1], [0, 2]),
        ([100, 100, 100], [0, 1, 2]),
        ([50] * 6, [0, 2, 4]),
        ([60] * 5, [0, 2, 4]),
        ([1, 500, 1, 1], [0, 2]),
    ],
)
def test_an_entry_is_due_once_a_hundred_messages_have_passed(counts: list[int], indexed: list[int]) -> None:
    batches = [(1000 + number * 5000, 32 + number * 200, count) for number, count in enumerate(counts)]
    index = parse_index(NAME, build_index(batches), 1000)
    assert entries_of(index) == [batches[number][:2] for number in indexed]
    assert (index.version, index.interval) == (1, 100)


def test_the_interval_is_the_callers_choice() -> None:
    index = parse_index(NAME, build_index([(1000 + n, 32 + n * 70, 1) for n in range(10)], interval=3), 1000)
    assert index.interval == 3
    assert list(index.offsets) == [1000, 1003, 1006, 1009]


def test_version_1_takes_its_largest_position_and_no_more() -> None:
    fits = build_index([(0, 32, 100), (100, MAX_LEGACY_POSITION, 100)])
    assert list(parse_index(NAME, fits, 0).positions) == [32, 2**31 - 1]
    with pytest.raises(
        IndexPositionError, match=r"2147483648.*kafscale\.segment\.format.*finalized"
    ) as caught:
        build_index([(0, 32, 100), (100, MAX_LEGACY_POSITION + 1, 100), (200, MAX_LEGACY_POSITION + 90, 1)])
    assert caught.value.position == MAX_LEGACY_POSITION + 1


def test_version_2_takes_its_largest_offset_and_no_more() -> None:
    first, last = 2**40, 2**40 + MAX_RELATIVE_OFFSET
    fits = build_index([(first, 32, 100), (last, 2**40, 100)], version=LARGE_VERSION)
    assert entries_of(parse_index(NAME, fits, first)) == [(first, 32), (last, 2**40)]
    batches = [(first, 32, 100), (last + 1, 500, 100), (last + 300, 600, 1)]
    with pytest.raises(IndexOffsetError, match=rf"offset {last + 1} .* starts with offset {first}") as caught:
        build_index(batches, version=LARGE_VERSION)
    assert caught.value.offset == last + 1
    # Version 1 holds absolute offsets.
    assert entries_of(parse_index(NAME, build_index(batches), first))[1] == (last + 1, 500)


def test_positions_beyond_2_gib_fit_version_2_only() -> None:
    batches = [(0, 32, 100), (100, 2**31, 100), (200, 2**62, 1)]
    index = parse_index(NAME, build_index(batches, version=LARGE_VERSION), 0)
    assert (index.version, entries_of(index)) == (2, [(0, 32), (100, 2**31), (200, 2**62)])
    with pytest.raises(IndexPositionError):
        build_index(batches)


@pytest.mark.parametrize(("level", "version"), [(1, 1), (2, 2), (3, 2)])
def test_the_version_follows_from_the_finalized_level(level: int, version: int) -> None:
    assert index_version_at(level) == version


def test_a_segment_without_a_batch_has_no_index() -> None:
    with pytest.raises(ValueError, match="needs a batch"):
        build_index([])


INDEX = parse_index(NAME, stored([(1000, 32), (1100, 500), (1250, 900)]), 1000)


@pytest.mark.parametrize(
    ("offset", "position"),
    [(0, 32), (999, 32), (1000, 32), (1099, 32), (1100, 500), (1249, 500), (1250, 900), (9999, 900)],
)
def test_a_look_up_gives_the_last_entry_at_or_before_the_offset(offset: int, position: int) -> None:
    assert INDEX.position_for(offset) == position


@pytest.mark.parametrize(
    ("max_position", "position"),
    [(0, 32), (32, 32), (499, 32), (500, 500), (899, 500), (900, 900), (9**9, 900)],
)
def test_limit_gives_last_batch_start_up_to_the_position(max_position: int, position: int) -> None:
    assert INDEX.position_limit(max_position) == position


def test_the_memory_of_an_index_grows_with_its_entries() -> None:
    assert INDEX.size_bytes == 3 * 16


def test_version_2_is_read() -> None:
    data = stored([(0, 32), (100, 500), (250, 2**31 + 7)], version=2)
    index = parse_index(NAME, data, 1000)
    assert index.version == 2
    assert entries_of(index) == [(1000, 32), (1100, 500), (1250, 2**31 + 7)]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "shorter than an index header"),
        (stored([(1000, 32)])[:15], "shorter than an index header"),
        (b"IDX1" + stored([(1000, 32)])[4:], "starts with"),
        (stored([]), "without an entry"),
        (stored([(1000, 32)], count=2), "2 entries do not fill the 12 bytes"),
        (stored([(1000, 32)], count=0), "0 entries do not fill"),
        (stored([(1000, 32)], count=2**32 - 1), "do not fill"),
        (stored([(1000, 32)]) + b"\0", "do not fill the 13 bytes"),
        (stored([(1001, 32)]), "not the first batch"),
        (stored([(1000, 33)]), "not the first batch"),
        (stored([(1000, -32)]), "not the first batch"),
        (stored([(1000, 32), (1000, 500)]), "not strictly increasing"),
        (stored([(1000, 32), (1100, 32)]), "not strictly increasing"),
        (stored([(1000, 32), (1100, 500), (1050, 900)]), "not strictly increasing"),
        (stored([(1000, 32), (1100, 500), (1200, -1)]), "not strictly increasing"),
        (stored([(1, 32)], version=2), "not the first batch"),
        (stored([(0, 32), (-1, 500)], version=2), "not strictly increasing"),
    ],
)
def test_a_broken_index_is_refused_by_name(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=problem) as caught:
        parse_index(NAME, data, 1000)
    assert caught.value.name == NAME


def test_an_offset_beyond_kafkas_largest_is_refused() -> None:
    base_offset = 2**63 - 2
    with pytest.raises(CorruptDataError, match="beyond"):
        parse_index(NAME, stored([(0, 32), (5, 500)], version=2), base_offset)


@pytest.mark.parametrize("version", [0, 3, 65535])
def test_an_unknown_version_is_refused_by_name_and_number(version: int) -> None:
    data = b"IDX\0" + version.to_bytes(2, "big") + stored([(1000, 32)])[6:]
    with pytest.raises(UnknownFormatVersionError, match=str(version)) as caught:
        parse_index(NAME, data, 1000)
    assert (caught.value.name, caught.value.version) == (NAME, version)


def test_an_index_that_points_outside_its_segment_is_refused() -> None:
    INDEX.check(last_offset=1250, body_end=901)
    for last_offset, body_end in ((1249, 901), (1250, 900)):
        with pytest.raises(CorruptDataError, match="outside its segment") as caught:
            INDEX.check(last_offset=last_offset, body_end=body_end)
        assert caught.value.name == NAME


@pytest.mark.parametrize("bucket", [GOLDEN_BUCKET, SAMPLE_BUCKET], ids=["golden", "samples"])
def test_indexes_of_another_writer_are_read(bucket: Path) -> None:
    if not bucket.is_dir():
        pytest.skip(f"the samples are not beside the repository: {bucket}")
    seen = 0
    for name, segment_bytes, index_bytes in stored_segments(bucket):
        segment = parse_segment(name, segment_bytes)
        index = parse_index(index_key_of(name), index_bytes, segment.base_offset)
        index.check(last_offset=segment.last_offset, body_end=segment.body_end)
        seen += 1
    assert seen == (4 if bucket == GOLDEN_BUCKET else 58)


@pytest.mark.parametrize(
    ("size_bytes", "record_count", "interval"),
    [
        pytest.param(100, 1, 100, id="one small record"),
        pytest.param(4 * 2**20, 40_000, 100, id="small records"),
        pytest.param(64 * 2**20, 64, 4, id="of 1 MiB"),
        pytest.param(64 * 2**20, 1, 1, id="one large record"),
        pytest.param(100, 0, 1, id="no record"),
    ],
)
def test_entries_are_closer_where_records_are_large(
    size_bytes: int, record_count: int, interval: int
) -> None:
    assert interval_for(size_bytes, record_count) == interval
