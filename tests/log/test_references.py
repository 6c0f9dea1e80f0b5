"""References found by offset, the same as a look at each would find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.log.references import SegmentReferences


def reference(base_offset: int, last_offset: int) -> SegmentReference:
    return SegmentReference(
        base_offset=base_offset,
        last_offset=last_offset,
        record_count=last_offset - base_offset + 1,
        leader_epoch=0,
        size_bytes=100,
        max_timestamp_ms=-1,
    )


@st.composite
def ascending(draw: st.DrawFn) -> list[SegmentReference]:
    offset, made = 0, []
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=12)):
        made.append(reference(offset + gap, offset + gap + length - 1))
        offset += gap + length
    return made


@given(ascending(), st.integers(0, 100))
def test_from_offset_returns_its_segment_and_all_later_ones(
    made: list[SegmentReference], offset: int
) -> None:
    assert list(SegmentReferences(made).from_offset(offset)) == [r for r in made if r.last_offset >= offset]


@given(ascending(), st.integers(0, 100))
def test_dropping_below_an_offset_keeps_the_rest(made: list[SegmentReference], offset: int) -> None:
    references = SegmentReferences(made)
    dropped = references.drop_below(offset)
    assert dropped == [r for r in made if r.last_offset < offset]
    assert dropped + list(references) == made
    assert references.size_bytes == 100 * len(references)
    assert list(references.from_offset(0)) == list(references)


def test_an_overlap_is_refused() -> None:
    references = SegmentReferences([reference(0, 9)])
    with pytest.raises(ValueError, match="overlaps"):
        references.append(reference(9, 12))
