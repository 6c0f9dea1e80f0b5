"""Plans of merges: when one is worth it, the limits of its segment, and how often bytes are rewritten."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life.merge_planner import (
    MAX_SOURCES,
    NEWEST_LEFT,
    MergeLimits,
    merged_size_bytes,
    plan_merge,
)
from kafscale.log.references import SegmentReferences

MIB = 1024 * 1024
LIMITS = MergeLimits(target_bytes=256 * MIB, min_segments=10)


def segments(
    sizes: Iterable[int], *, records: int = 1, timestamps_ms: Iterable[int] = ()
) -> list[SegmentReference]:
    """Neighbours with these sizes."""
    given_timestamps = list(timestamps_ms)
    return [
        SegmentReference(
            base_offset=number * records,
            last_offset=(number + 1) * records - 1,
            record_count=records,
            leader_epoch=0,
            size_bytes=size_bytes,
            max_timestamp_ms=given_timestamps[number] if given_timestamps else number,
        )
        for number, size_bytes in enumerate(sizes)
    ]


def merged(sources: Sequence[SegmentReference]) -> SegmentReference:
    return sources[-1]._replace(
        base_offset=sources[0].base_offset,
        record_count=sum(source.record_count for source in sources),
        size_bytes=merged_size_bytes(sources),
        object_key="merged",
    )


def settle(references: SegmentReferences, limits: MergeLimits) -> int:
    """Merge until nothing is left to merge; returns how many bytes were written."""
    written = 0
    while sources := plan_merge(tuple(references), limits):
        whole = merged(sources)
        assert references.replace(whole) == list(sources)
        written += whole.size_bytes
    return written


def test_ten_thousand_segments_of_one_record_become_a_handful() -> None:
    references = SegmentReferences(segments([160] * 10_000))
    settle(references, LIMITS)
    assert len(references) <= 1 + NEWEST_LEFT
    assert sum(reference.record_count for reference in references) == 10_000


def test_a_backlog_is_merged_oldest_first_and_a_thousand_at_once() -> None:
    references = segments([160] * 3000)
    assert list(plan_merge(references, LIMITS)) == references[:MAX_SOURCES]


def test_too_few_segments_are_left_alone_and_so_are_the_newest() -> None:
    references = segments([160] * (LIMITS.min_segments + NEWEST_LEFT))
    assert list(plan_merge(references, LIMITS)) == references[: LIMITS.min_segments]
    assert plan_merge(references[1:], LIMITS) == ()


def test_fewer_are_merged_where_they_fill_a_segment() -> None:
    references = segments([100 * MIB] * 6)
    assert list(plan_merge(references, LIMITS)) == references[:2]


def test_what_is_over_half_the_target_is_left_alone() -> None:
    assert plan_merge(segments([129 * MIB] * 50), LIMITS) == ()


def test_a_large_segment_is_not_rewritten_for_a_few_small_ones() -> None:
    references = segments([20 * MIB] + [1000] * (LIMITS.min_segments + NEWEST_LEFT))
    assert list(plan_merge(references, LIMITS)) == references[1 : 1 + LIMITS.min_segments]


def test_segments_far_apart_in_time_are_not_merged() -> None:
    limits = replace(LIMITS, min_segments=2, max_span_ms=10)
    references = segments([160] * 8, timestamps_ms=[0, 5, 11, 12, 40, 100, 100, 100])
    assert list(plan_merge(references, limits)) == references[:2]
    assert plan_merge(segments([160] * 8, timestamps_ms=range(0, 800, 100)), limits) == ()
    # What carries no timestamp expires by other rules.
    without = segments([160] * 5, timestamps_ms=[-1] * 5)
    assert list(plan_merge(without, limits)) == without[:2]


def test_a_merge_fits_the_fields_of_its_header_and_index() -> None:
    limits = replace(LIMITS, min_segments=2)
    references = segments([160] * 8, records=2**30)
    assert plan_merge(references, limits) == ()
    sparse = [one._replace(record_count=1) for one in references]
    assert list(plan_merge(sparse, limits)) == sparse[:2]
    halves = segments([160] * 8, records=2**30 - 1)
    assert list(plan_merge(halves, limits)) == halves[:2]


def test_a_segment_that_cannot_be_read_is_a_border() -> None:
    references = segments([160] * 30)
    sources = plan_merge(references, LIMITS, unreadable={5})
    assert sources[0].base_offset == 6


def test_a_key_that_is_taken_is_avoided() -> None:
    references = segments([160] * 20)
    first = plan_merge(references, LIMITS)
    taken = {(first[0].base_offset, first[-1].last_offset)}
    assert list(plan_merge(references, LIMITS, taken=taken)) == list(first[:-1])


SIZES = st.integers(100, 2 * MIB)


@given(
    sizes=st.lists(SIZES, max_size=120),
    target_bytes=st.integers(1 * MIB, 16 * MIB),
    min_segments=st.integers(2, 12),
    unreadable=st.sets(st.integers(0, 120)),
)
def test_a_plan_is_a_run_of_neighbours_within_the_limits(
    sizes: list[int], target_bytes: int, min_segments: int, unreadable: set[int]
) -> None:
    limits = MergeLimits(target_bytes=target_bytes, min_segments=min_segments)
    references = segments(sizes)
    sources = list(plan_merge(references, limits, unreadable=unreadable))
    if sources:
        start = references.index(sources[0])
        assert references[start : start + len(sources)] == sources
        assert start + len(sources) <= len(references) - NEWEST_LEFT
        assert len(sources) >= 2
        assert merged_size_bytes(sources) <= target_bytes
        assert not unreadable & {source.base_offset for source in sources}
        is_full = merged_size_bytes(sources) * 2 >= target_bytes
        assert is_full or len(sources) >= min_segments
        assert is_full or max(source.size_bytes for source in sources) * 2 <= sum(
            source.size_bytes for source in sources
        )


@given(sizes=st.lists(SIZES, min_size=1, max_size=300), min_segments=st.integers(2, 12))
def test_a_growing_log_rewrites_each_byte_only_a_few_times(sizes: list[int], min_segments: int) -> None:
    limits = MergeLimits(target_bytes=32 * MIB, min_segments=min_segments)
    references = SegmentReferences()
    written = 0
    for segment in segments(sizes):
        references.append(segment)
        written += settle(references, limits)
    assert sum(reference.record_count for reference in references) == len(sizes)
    # Every rewriting at least doubles the segment that a byte is in: from 100 bytes to 32 MiB that is 19 times
    # at the very most, and by far not for all of them.
    assert written <= 8 * sum(sizes)
