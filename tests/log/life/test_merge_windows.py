"""Windows of merges and the ranges that are read for them."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life.merge_windows import (
    GAP_BYTES,
    MERGES_OF_A_WINDOW,
    WINDOW_BYTES,
    PlannedMerge,
    Slice,
    extents,
    windows,
)

MIB = 1024 * 1024


def source(number: int, size_bytes: int, key: str = "", start: int = 0) -> SegmentReference:
    return SegmentReference(
        base_offset=number,
        last_offset=number,
        record_count=1,
        leader_epoch=0,
        size_bytes=size_bytes,
        max_timestamp_ms=number,
        object_key=key,
        start=start,
    )


def gathered(partitions: int, rounds: int, size_bytes: int) -> list[PlannedMerge[int]]:
    """Merges of partitions whose segments of one time lie in one object, sorted by partition."""
    return [
        PlannedMerge(
            partition,
            tuple(
                source(number, size_bytes, f"_kafscale/gathered/{number}", partition * size_bytes)
                for number in range(rounds)
            ),
        )
        for partition in range(partitions)
    ]


def ranges(merges: tuple[PlannedMerge[int], ...]) -> int:
    """How many requests read the sources of these."""
    sources = [one for merge in merges for one in merge.sources]
    slices = [Slice(at, one.object_key, one.start, one.size_bytes) for at, one in enumerate(sources)]
    return len(extents(slices, 2 * MIB))


def test_a_merge_of_whole_objects_is_a_window_by_itself() -> None:
    merged_key = object_keys.merged_segment_key("default", "topic", 0, 0, 9)
    planned = [PlannedMerge(at, (source(0, 100), source(10, 100, merged_key))) for at in range(3)]
    assert [window.merges for window in windows(planned)] == [(one,) for one in planned]


def test_neighbours_in_shared_objects_are_read_together() -> None:
    found = list(windows(reversed(gathered(MERGES_OF_A_WINDOW, 10, 1000))))
    assert [merge.owner for merge in found[0].merges] == list(range(MERGES_OF_A_WINDOW))
    assert ranges(found[0].merges) == 10


def test_a_window_of_shared_objects_is_bounded() -> None:
    found = list(windows(gathered(300, 10, 50_000)))
    assert len(found) > 1
    assert all(window.size_bytes <= WINDOW_BYTES and not window.is_streamed for window in found)


def test_a_merge_above_the_bound_is_streamed_alone() -> None:
    planned = [PlannedMerge(0, (source(0, WINDOW_BYTES), source(1, 100))), PlannedMerge(1, (source(0, 100),))]
    assert [window.is_streamed for window in windows(planned)] == [True, False]


def test_slices_with_a_small_gap_share_a_range() -> None:
    near = [Slice(0, "a", 0, 100), Slice(1, "a", 100 + GAP_BYTES, 100)]
    far = [Slice(0, "a", 0, 100), Slice(1, "a", 101 + GAP_BYTES, 100)]
    assert [(one.start, one.length) for one in extents(near, MIB)] == [(0, 200 + GAP_BYTES)]
    assert len(extents(far, MIB)) == 2


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 500), st.integers(1, 90)), min_size=1, max_size=30
    ),
    st.integers(50, 400),
    st.integers(0, 40),
)
def test_every_slice_lies_in_one_range(
    places: list[tuple[str, int, int]], most_bytes: int, gap_bytes: int
) -> None:
    slices = [Slice(number, *place) for number, place in enumerate(places)]
    found = extents(slices, most_bytes, gap_bytes)
    assert sorted(one.source for extent in found for one in extent.slices) == list(range(len(slices)))
    for extent in found:
        end = extent.start + extent.length
        assert all(extent.start <= one.start and one.end <= end for one in extent.slices)
        assert (
            extent.length <= most_bytes
            or len({one.start for one in extent.slices}) == 1
            or any(one.length > most_bytes for one in extent.slices)
        )


@given(st.lists(st.tuples(st.booleans(), st.integers(1, WINDOW_BYTES * 2)), max_size=40))
def test_every_merge_is_in_exactly_one_window(shapes: list[tuple[bool, int]]) -> None:
    planned = [
        PlannedMerge(owner, (source(0, size, "_kafscale/gathered/0" if shares else "", owner),))
        for owner, (shares, size) in enumerate(shapes)
    ]
    found = [merge.owner for window in windows(planned) for merge in window.merges]
    assert sorted(found) == list(range(len(planned)))
