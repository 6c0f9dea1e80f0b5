"""Sets of offsets do what sets do."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.lake.ranges import Ranges, difference, first_missing, intersection, size, union

some_ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


def offsets(ranges: object) -> set[int]:
    return {offset for first, following in ranges for offset in range(first, following)}  # type: ignore[attr-defined]


def is_tidy(ranges: Ranges) -> bool:
    ends = [end for one in ranges for end in one]
    return ends == sorted(set(ends))


@given(some_ranges, some_ranges)
def test_as_sets(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    for ours, theirs in (
        (union(some, others), offsets(some) | offsets(others)),
        (difference(some, others), offsets(some) - offsets(others)),
        (intersection(some, others), offsets(some) & offsets(others)),
    ):
        assert offsets(ours) == theirs
        assert is_tidy(ours)
        assert size(ours) == len(theirs)


@given(some_ranges, st.integers(0, 60))
def test_the_first_missing_offset(ranges: list[tuple[int, int]], offset: int) -> None:
    found = first_missing(ranges, offset)
    assert found not in offsets(ranges)
    assert set(range(offset, found)) <= offsets(ranges)
