"""The walk over a segment: what it passes on, in pieces of any size, and where it stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_walk import BatchWalk, BrokenChainError
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.formats.segment_walk import SegmentWalk
from kafscale.memory.pieces import Pieces
from kafscale.protocol.record_batch import LENGTH_POSITION
from tests.formats.segments import batch, segment_of

BATCHES = [batch(100, 3), batch(103, 2), batch(110, 4)]
SEGMENT = segment_of(BATCHES)
BODY = SEGMENT[HEADER_SIZE:-FOOTER_SIZE]
POSITIONS = [HEADER_SIZE + sum(map(len, BATCHES[:number])) for number in range(3)]


def fed(walk: SegmentWalk, cuts: list[int]) -> list[bytes]:
    """The result of each feed, of the segment cut into these pieces."""
    ends = sorted({cut % len(SEGMENT) for cut in cuts} | {len(SEGMENT)})
    return [
        b"".join(walk.feed(memoryview(SEGMENT)[start:end]))
        for start, end in zip([0, *ends], ends, strict=False)
    ]


@given(st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
def test_feeds_return_the_body_once_and_in_order(cuts: list[int], checks_crcs: bool) -> None:
    walk = SegmentWalk("s", len(SEGMENT), checks_crcs=checks_crcs)
    assert b"".join(fed(walk, cuts)) == BODY
    header, footer = walk.finish()
    assert (header.base_offset, footer.last_offset) == (100, 113)


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_checked_feeds_end_where_a_batch_ends(cuts: list[int]) -> None:
    ends = {0, *(position - HEADER_SIZE for position in POSITIONS), len(BODY)}
    returned = 0
    for part in fed(SegmentWalk("s", len(SEGMENT)), cuts):
        returned += len(part)
        assert returned in ends


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_visitor_receives_each_batch_once(cuts: list[int]) -> None:
    visited: list[tuple[int, int]] = []
    walk = SegmentWalk(
        "s", len(SEGMENT), visit=lambda position, header: visited.append((position, header.base_offset))
    )
    fed(walk, cuts)
    assert visited == list(zip(POSITIONS, [100, 103, 110], strict=True))
    chain = walk.chain
    assert (chain.gaps, chain.batch_count, chain.record_count) == ([100, 110], 3, 9)


def test_length_beyond_the_body_is_refused_with_its_header() -> None:
    data = bytearray(SEGMENT)
    data[POSITIONS[2] + LENGTH_POSITION] = 0x7F
    walk = SegmentWalk("s", len(data))
    with pytest.raises(BrokenChainError, match=f"batch at position {POSITIONS[2]}: its .* are cut after"):
        walk.feed(memoryview(bytes(data))[: POSITIONS[2] + 61])


def test_file_that_ends_early_is_refused() -> None:
    walk = SegmentWalk("s", len(SEGMENT))
    walk.feed(memoryview(SEGMENT)[:-1])
    with pytest.raises(CorruptDataError, match=f"{len(SEGMENT) - 1} bytes where there should be"):
        walk.finish()


def test_first_batch_must_have_the_offset_that_is_due() -> None:
    pieces = Pieces([memoryview(BODY)])
    with pytest.raises(BrokenChainError, match="position 0: base offset 100 where 99 is due"):
        BatchWalk("s", 0, 99).walk(pieces, pieces.end)
    later = BatchWalk("s", 0, 99, may_begin_later=True)
    later.walk(pieces, pieces.end)
    assert (later.chain.gaps, later.chain.next_offset) == ([100, 110], 114)


def test_batch_that_breaks_its_crc_is_named_with_its_object() -> None:
    damaged = bytearray(BODY)
    damaged[len(BATCHES[0]) - 1] ^= 1
    pieces = Pieces([memoryview(damaged)])
    with pytest.raises(CorruptDataError, match=r"segment-7\.kfs: batch at position 0: CRC"):
        BatchWalk("segment-7.kfs", 0, 100, checks_crcs=True).walk(pieces, pieces.end)
