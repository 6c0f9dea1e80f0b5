"""A fetch's part of a segment, for any batches, any pieces and any limit."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.index import build_index, parse_index
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.protocol.record_batch import read_header
from tests.formats.segments import batch

BASE_OFFSET = 1000


@st.composite
def segments(draw: st.DrawFn) -> tuple[CachedSegment, list[bytes]]:
    """A segment and its batches; between batches there may be gaps, as a merge leaves them."""
    batches, offset = [], BASE_OFFSET
    for count, gap, value_bytes in draw(
        st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=25)
    ):
        batches.append(batch(offset, count, value_bytes=value_bytes))
        offset += count + gap
    positions = [HEADER_SIZE + sum(map(len, batches[:number])) for number in range(len(batches))]
    headers = [read_header(one, 0) for one in batches]
    index = build_index(
        [(h.base_offset, p, h.record_count) for h, p in zip(headers, positions, strict=True)],
        interval=draw(st.integers(1, 30)),
    )
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(batches) - 1)), max_size=4)))
    pieces = [
        memoryview(b"".join(batches[begin:end]))
        for begin, end in zip([0, *cuts], [*cuts, len(batches)], strict=True)
        if begin < end
    ]
    reference = SegmentReference(
        base_offset=BASE_OFFSET,
        last_offset=headers[-1].last_offset,
        record_count=sum(h.record_count for h in headers),
        leader_epoch=3,
        size_bytes=sum(map(len, batches)) + HEADER_SIZE + 16,
        max_timestamp_ms=0,
    )
    parsed = parse_index("index", index, BASE_OFFSET)
    return CachedSegment(reference, pieces, HEADER_SIZE, parsed, partition_number=1), batches


@given(segments(), st.integers(-5, 250), st.integers(-10, 3000), st.booleans())
def test_range_is_longest_run_of_whole_batches_within_limit(
    made: tuple[CachedSegment, list[bytes]], after: int, max_bytes: int, at_least_one: bool
) -> None:
    segment, batches = made
    offset = BASE_OFFSET + after
    wanted = [one for one in batches if read_header(one, 0).last_offset >= offset]
    expected: list[bytes] = []
    for one in wanted:
        fits = sum(map(len, expected)) + len(one) <= max_bytes
        if not fits and not (at_least_one and not expected):
            break
        expected.append(one)

    start = segment.position_of(offset)
    end = segment.limit(start, max_bytes, at_least_one)
    assert b"".join(segment.slices(start, end)) == b"".join(expected)
    if wanted:
        assert segment.offset_at(start) == read_header(wanted[0], 0).base_offset
    if len(expected) == len(wanted):
        assert (end, segment.offset_at(end)) == (segment.end, segment.reference.last_offset + 1)
    found = [bytes(view) for view, _ in segment.batches(start)]
    assert found == wanted
