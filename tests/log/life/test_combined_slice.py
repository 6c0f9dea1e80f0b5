"""Neighbouring slices as one: a whole segment of their batches, verbatim, and where these are in it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE
from kafscale.log.life.combined_slice import (
    CombinedSlice,
    SliceBody,
    combine,
    places_of_batches,
    places_of_slices,
)
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from tests.formats.segments import batch, parse_segment, verify_segment

CREATED_MS = 1_700_000_000_123

BATCHES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40)), min_size=1, max_size=4)
"""Of a slice: the number of records of each batch, and the size of their values."""
SLICES = st.lists(st.tuples(BATCHES, st.integers(-1, 2**40), st.integers(0, 3)), min_size=1, max_size=6)
"""Of each slice: its batches, its largest timestamp, and how many more epochs there were before it."""


def bodies_of(
    shape: list[tuple[list[tuple[int, int]], int, int]], first: int
) -> tuple[list[SliceBody], list[bytes]]:
    """Slices without a gap between them, and all their batches."""
    bodies, batches, offset, epoch = [], [], first, 0
    for batch_shapes, timestamp_ms, new_epochs in shape:
        base_offset, its_own = offset, []
        epoch += new_epochs
        for records, value_bytes in batch_shapes:
            its_own.append(batch(offset, records, value_bytes=value_bytes))
            offset += records
        reference = SegmentReference(
            base_offset=base_offset,
            last_offset=offset - 1,
            record_count=offset - base_offset,
            leader_epoch=epoch,
            size_bytes=sum(map(len, its_own)),
            max_timestamp_ms=timestamp_ms,
            object_key="anywhere",
            start=7,
        )
        bodies.append(SliceBody(reference, b"".join(its_own)))
        batches += its_own
    return bodies, batches


def image(made: CombinedSlice) -> bytes:
    return b"".join(made.parts)


@given(SLICES, st.integers(0, 2**40))
def test_image_is_a_sound_segment_of_the_batches(
    shape: list[tuple[list[tuple[int, int]], int, int]], first: int
) -> None:
    bodies, batches = bodies_of(shape, first)
    made = combine(bodies, CREATED_MS)
    segment = parse_segment("combined", image(made))
    headers = [header for _, header in verify_segment(segment)]
    assert bytes(segment.body) == b"".join(batches) == made.body
    assert headers[0].base_offset == segment.base_offset == first
    assert segment.last_offset == headers[-1].base_offset + headers[-1].record_count - 1
    assert (segment.header.created_ms, segment.footer.body_crc) == (CREATED_MS, made.body_crc)


@given(SLICES, st.integers(0, 2**40))
def test_reference_says_what_the_image_has(
    shape: list[tuple[list[tuple[int, int]], int, int]], first: int
) -> None:
    bodies, _ = bodies_of(shape, first)
    made = combine(bodies, CREATED_MS)
    segment, reference = parse_segment("combined", image(made)), made.reference
    assert reference.size_bytes == len(segment.data)
    assert (reference.base_offset, reference.last_offset) == (segment.base_offset, segment.last_offset)
    assert reference.record_count == segment.header.message_count
    assert reference.max_timestamp_ms == max(one.reference.max_timestamp_ms for one in bodies)
    assert reference.leader_epoch == bodies[-1].reference.leader_epoch
    assert (reference.object_key, reference.start) == ("", 0), "its object has no name yet"


@given(SLICES, st.integers(0, 2**40))
def test_places_are_where_slices_and_batches_begin(
    shape: list[tuple[list[tuple[int, int]], int, int]], first: int
) -> None:
    bodies, _ = bodies_of(shape, first)
    made = combine(bodies, CREATED_MS)
    batches = verify_segment(parse_segment("combined", image(made)))
    expected = [(header.base_offset, position, header.record_count) for position, header in batches]
    assert places_of_batches("combined", made.body) == expected
    position_of = {base_offset: position for base_offset, position, _ in expected}
    assert places_of_slices(bodies) == [
        (one.reference.base_offset, position_of[one.reference.base_offset], one.reference.record_count)
        for one in bodies
    ]


def test_one_slice_stays_what_it_is() -> None:
    bodies, batches = bodies_of([([(2, 5)], 9, 1)], 40)
    made = combine(bodies, CREATED_MS)
    assert made.body == batches[0]
    assert (made.reference.base_offset, made.reference.last_offset) == (40, 41)


def test_codec_is_left_to_the_batches() -> None:
    compressed = batch(0, 3, codec=Codec.GZIP)
    reference = SegmentReference(
        base_offset=0,
        last_offset=2,
        record_count=3,
        leader_epoch=0,
        size_bytes=len(compressed),
        max_timestamp_ms=-1,
    )
    segment = parse_segment("combined", image(combine([SliceBody(reference, compressed)], CREATED_MS)))
    assert segment.header.codec is Codec.NONE
    assert verify_segment(segment)[0][1].codec is Codec.GZIP


def test_no_batches_have_no_places() -> None:
    assert places_of_batches("nothing", b"") == []


@given(SLICES, st.data())
def test_a_cut_body_is_refused_unless_cut_between_batches(
    shape: list[tuple[list[tuple[int, int]], int, int]], data: st.DataObject
) -> None:
    _, batches = bodies_of(shape, 0)
    body = b"".join(batches)
    end = data.draw(st.integers(0, len(body) - 1))
    ends = [sum(map(len, batches[:count])) for count in range(len(batches) + 1)]
    if end in ends:
        assert len(places_of_batches("cut", body[:end])) == ends.index(end)
        return
    began = max(one for one in ends if one < end)
    with pytest.raises(CorruptDataError, match=f"the batch at position {HEADER_SIZE + began} does not end"):
        places_of_batches("cut", body[:end])


@given(st.binary(max_size=400))
def test_any_bytes_have_places_or_are_refused(body: bytes) -> None:
    """A length that is too short for a batch does not keep the walk from ending."""
    try:
        places = places_of_batches("any", body)
    except CorruptDataError:
        return
    positions = [position for _, position, _ in places]
    assert all(later - earlier >= BATCH_HEADER_SIZE for earlier, later in pairwise(positions))


def test_a_length_below_zero_is_no_step_back() -> None:
    one = bytes(8) + b"\xff" * 4 + bytes(BATCH_HEADER_SIZE - 12)
    positions = [position for _, position, _ in places_of_batches("any", one + one)]
    assert positions == [HEADER_SIZE, HEADER_SIZE + BATCH_HEADER_SIZE]
