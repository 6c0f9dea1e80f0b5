"""When a partition is compacted, what of it, and in what groups: Kafka's rules."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats import object_keys
from kafscale.formats.journal_keys import entry_key
from kafscale.formats.object_keys import Compaction
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.compaction.compaction_plan import (
    CompactionLimits,
    CompactionState,
    compaction_groups,
    compaction_state,
    is_worth_writing,
)

NOW_MS = 1_700_000_000_000
EAGER = CompactionLimits(min_dirty_ratio=0.0, min_lag_ms=0, max_lag_ms=2**62)


def segment(
    base_offset: int,
    last_offset: int,
    *,
    map_end_offset: int | None = None,
    size_bytes: int = 100,
    age_ms: int = 1000,
) -> SegmentReference:
    """A sealed segment, or a compacted one with the end of its map."""
    folder = ("default", "topic", 0)
    if map_end_offset is None:
        key = object_keys.merged_segment_key(*folder, base_offset, last_offset)
    else:
        compaction = Compaction(map_end_offset, 0, "token")
        key = object_keys.compacted_segment_key(*folder, base_offset, last_offset, compaction)
    return SegmentReference(
        base_offset=base_offset,
        last_offset=last_offset,
        record_count=last_offset - base_offset + 1,
        leader_epoch=0,
        size_bytes=size_bytes,
        max_timestamp_ms=NOW_MS - age_ms if age_ms >= 0 else -1,
        object_key=key,
    )


def offsets(found: tuple[SegmentReference, ...]) -> list[int]:
    return [one.base_offset for one in found]


def state(*references: SegmentReference, limits: CompactionLimits = EAGER) -> CompactionState:
    return compaction_state(references, limits, NOW_MS)


def test_the_newest_seal_and_what_is_not_sealed_stay_out() -> None:
    unsealed = SegmentReference(
        base_offset=30,
        last_offset=39,
        record_count=10,
        leader_epoch=0,
        size_bytes=100,
        max_timestamp_ms=NOW_MS,
        object_key=entry_key("default", "journal", 7),
    )
    found = state(segment(0, 9), segment(10, 19), segment(20, 29), unsealed)
    assert (offsets(found.clean), offsets(found.dirty), found.is_due) == ([], [0, 10], True)


def test_an_empty_log_and_one_with_one_segment_are_not_due() -> None:
    assert not state().is_due
    assert not state(segment(0, 9)).is_due


def test_compacted_segments_at_the_start_are_clean() -> None:
    found = state(
        segment(0, 9, map_end_offset=20), segment(10, 19, map_end_offset=20), segment(20, 29), segment(30, 39)
    )
    assert (offsets(found.clean), offsets(found.dirty), found.first_dirty_offset) == ([0, 10], [20], 20)


def test_a_segment_whose_map_was_full_is_dirty_from_there() -> None:
    found = state(segment(0, 9, map_end_offset=15), segment(10, 19, map_end_offset=15), segment(20, 29))
    assert (offsets(found.clean), offsets(found.dirty), found.first_dirty_offset) == ([0], [10], 15)


@pytest.mark.parametrize(("dirty_bytes", "is_due"), [(99, False), (100, False), (101, True)])
def test_it_is_due_above_the_dirty_ratio(dirty_bytes: int, is_due: bool) -> None:
    limits = CompactionLimits(min_dirty_ratio=0.5, min_lag_ms=0, max_lag_ms=2**62)
    clean = segment(0, 9, map_end_offset=10, size_bytes=100)
    found = state(clean, segment(10, 19, size_bytes=dirty_bytes), segment(20, 29), limits=limits)
    assert found.is_due == is_due


@pytest.mark.parametrize(("age_ms", "is_due"), [(59_999, False), (60_000, True)])
def test_it_is_due_when_its_oldest_new_segment_is_too_old(age_ms: int, is_due: bool) -> None:
    limits = CompactionLimits(min_dirty_ratio=1.0, min_lag_ms=0, max_lag_ms=60_000)
    found = state(segment(0, 9, age_ms=age_ms), segment(10, 19), limits=limits)
    assert found.is_due == is_due
    assert found.due_ms == (NOW_MS if is_due else NOW_MS - age_ms + 60_000)


def test_young_records_stay_out_with_all_that_follows() -> None:
    limits = CompactionLimits(min_dirty_ratio=0.0, min_lag_ms=60_000, max_lag_ms=2**62)
    found = state(
        segment(0, 9, age_ms=60_000),
        segment(10, 19, age_ms=59_000),
        segment(20, 29, age_ms=70_000),
        segment(30, 39),
        limits=limits,
    )
    assert offsets(found.dirty) == [0]
    assert found.is_due
    undated = state(segment(0, 9, age_ms=-1), segment(10, 19), limits=limits)
    assert not undated.dirty
    assert undated.due_ms is None
    young = state(segment(0, 9, age_ms=50_000), segment(10, 19), limits=limits)
    assert (young.is_due, young.due_ms) == (False, NOW_MS + 10_000)


@given(sizes=st.lists(st.integers(1, 200), max_size=30), group_bytes=st.integers(1, 300))
def test_groups_have_every_segment_once_and_in_order(sizes: list[int], group_bytes: int) -> None:
    references = [segment(10 * place, 10 * place + 9, size_bytes=size) for place, size in enumerate(sizes)]
    groups = compaction_groups(references, group_bytes=group_bytes)
    assert [one for group in groups for one in group] == references
    totals = [sum(one.size_bytes for one in group) for group in groups]
    assert all(total <= group_bytes or len(group) == 1 for total, group in zip(totals, groups, strict=True))
    # Neighbours would not have fitted into one.
    assert all(
        total + later[0].size_bytes > group_bytes
        for total, (_, later) in zip(totals, pairwise(groups), strict=False)
    )


def test_a_group_spans_a_limited_time_where_segments_expire() -> None:
    references = [segment(10 * day, 10 * day + 9, age_ms=day * 1000) for day in range(6)]
    assert [offsets(group) for group in compaction_groups(references, 2000)] == [[0, 10, 20], [30, 40, 50]]


def test_a_clean_group_is_written_only_to_join_small_segments() -> None:
    small = [segment(10 * n, 10 * n + 9, map_end_offset=90, size_bytes=10) for n in range(3)]
    large = segment(30, 39, map_end_offset=90, size_bytes=1000)
    assert is_worth_writing(small, 90, has_changes=False)
    assert not is_worth_writing([*small, large], 90, has_changes=False)
    assert not is_worth_writing(small[:1], 90, has_changes=False)
    assert is_worth_writing([large], 90, has_changes=True)
    # What was dirty is written under a name that says that it is clean.
    assert is_worth_writing([segment(0, 9)], 0, has_changes=False)
