"""A segment looked through piece by piece: the same index and the same chunks, whatever the pieces are."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError
from kafscale.formats.index import LARGE_VERSION, LEGACY_VERSION, build_index, parse_index
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE, body_crc
from kafscale.formats.segment_layout import SegmentLayout, layout_of
from kafscale.formats.segment_scan import SegmentScan
from kafscale.protocol.record_batch import read_header
from tests.formats.segments import (
    GOLDEN_BUCKET,
    SAMPLE_BUCKET,
    batch,
    parse_segment,
    segment_of,
    stored_segments,
)

NAME = "n/t/0/segment-00000000000000001000.kfs"
ANY = 10**9


def reference_to(data: bytes) -> SegmentReference:
    segment = parse_segment(NAME, data)
    return SegmentReference(
        base_offset=segment.base_offset,
        last_offset=segment.last_offset,
        record_count=segment.header.message_count,
        leader_epoch=0,
        size_bytes=len(data),
        max_timestamp_ms=0,
    )


def scanned(
    data: bytes, chunk_bytes: int = ANY, cuts: tuple[int, ...] = ()
) -> tuple[SegmentScan, SegmentLayout]:
    """Looked through in the pieces that the cuts make of it."""
    scan = SegmentScan(NAME, reference_to(data), chunk_bytes)
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        scan.feed(memoryview(data)[start:end])
    return scan, scan.finish()


@pytest.mark.parametrize("version", [LEGACY_VERSION, LARGE_VERSION])
def test_a_rebuilt_index_leads_to_every_batch(version: int) -> None:
    batches = [batch(1000 + number * 40, 40) for number in range(10)]
    data = segment_of(batches)
    index = parse_index(NAME, scanned(data)[0].index(version), 1000)
    assert index.version == version
    assert list(index.offsets) == [1000, 1120, 1240, 1360]
    for offset, position in zip(index.offsets, index.positions, strict=True):
        assert data[position : position + 8] == offset.to_bytes(8, "big")


@pytest.mark.parametrize("bucket", [GOLDEN_BUCKET, SAMPLE_BUCKET], ids=["golden", "samples"])
def test_indexes_of_another_writer_are_rebuilt_byte_for_byte(bucket: Path) -> None:
    if not bucket.is_dir():
        pytest.skip(f"the samples are not beside the repository: {bucket}")
    for _, data, index in stored_segments(bucket):
        assert scanned(data)[0].index(LEGACY_VERSION) == index


@pytest.mark.parametrize("place", [3, 40, 70, 200, -20, -10, -1])
def test_a_damaged_segment_has_no_index(place: int) -> None:
    data = bytearray(segment_of([batch(1000, 3), batch(1003, 3)]))
    reference = reference_to(bytes(data))
    data[place] ^= 1
    scan = SegmentScan(NAME, reference, ANY)
    with pytest.raises(CorruptDataError):
        scan.feed(memoryview(bytes(data)))
        scan.finish()


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 60)), min_size=1, max_size=20),
    st.integers(1, 2000),
    st.lists(st.integers(0, 100_000), max_size=12),
)
def test_chunks_are_whole_batches_with_crcs_for_any_pieces(
    shapes: list[tuple[int, int, int]], chunk_bytes: int, cuts: list[int]
) -> None:
    batches, offset = [], 1000
    for count, gap, value_bytes in shapes:
        batches.append(batch(offset, count, value_bytes=value_bytes))
        offset += count + gap
    data = segment_of(batches)
    scan, layout = scanned(data, chunk_bytes, tuple(cuts))
    assert scan.index(LEGACY_VERSION) == scanned(data)[0].index(LEGACY_VERSION)
    last_offset = reference_to(data).last_offset
    starts = {HEADER_SIZE + sum(map(len, batches[:number])) for number in range(len(batches) + 1)}
    offset, position = 1000, HEADER_SIZE
    while offset <= last_offset:
        chunk = layout.at_offset(offset)
        assert (chunk.first_offset, chunk.start) == (offset, position)
        assert chunk.end in starts
        assert chunk.crc == body_crc([data[chunk.start : chunk.end]])
        batch_count = len(starts & set(range(chunk.start, chunk.end)))
        assert chunk.size_bytes <= chunk_bytes or batch_count == 1
        offset, position = chunk.next_offset, chunk.end
    assert (offset, position, layout.is_verified) == (last_offset + 1, len(data) - 16, True)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60)), min_size=1, max_size=20),
    st.integers(1, 30),
    st.integers(1, 2000),
)
def test_index_chunks_cover_the_segment_as_large_as_allowed(
    shapes: list[tuple[int, int]], interval: int, chunk_bytes: int
) -> None:
    batches, offset = [], 1000
    for count, value_bytes in shapes:
        batches.append(batch(offset, count, value_bytes=value_bytes))
        offset += count
    data = segment_of(batches)
    body_end, last_offset = len(data) - 16, offset - 1
    index = parse_index("index", _index(batches, interval), 1000)
    layout = layout_of(index, last_offset=last_offset, body_end=body_end, chunk_bytes=chunk_bytes)
    entries = dict(zip(index.offsets, index.positions, strict=True))
    ends = sorted((*entries.values(), body_end))
    offset, largest = 1000, 0
    while offset <= last_offset:
        chunk = layout.at_offset(offset)
        assert (chunk.first_offset, chunk.start) == (offset, entries[offset])
        # No shorter than need be: one entry more would be too much, unless this is the shortest there can be.
        following = [end for end in ends if end > chunk.end]
        if following:
            assert following[0] - chunk.start > chunk_bytes
        if chunk.size_bytes > chunk_bytes:
            assert not [end for end in ends if chunk.start < end < chunk.end]
        largest = max(largest, chunk.size_bytes)
        offset = chunk.next_offset
    assert chunk.is_last
    assert chunk.end == body_end
    assert layout.is_coarse == (largest > 4 * chunk_bytes)


def _index(batches: list[bytes], interval: int) -> bytes:
    position, found = HEADER_SIZE, []
    for data in batches:
        header = read_header(data, 0)
        found.append((header.base_offset, position, header.record_count))
        position += len(data)
    return build_index(found, interval)
