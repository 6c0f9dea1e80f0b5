"""The debt of merging, and how many merges it justifies."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life.merge_debt import LATE_SEC, SOURCES_OF_A_LANE, MergeDebt, merges_at_once
from kafscale.log.life.merge_planner import NEWEST_LEFT, MergeLimits, plan_with_debt
from kafscale.log.references import SegmentReferences
from tests.log.life.test_merge_planner import LIMITS, merged, segments

MOST = 16


def test_an_idle_broker_merges_one_after_the_other() -> None:
    assert merges_at_once(0, 0.0, MOST) == 1
    assert merges_at_once(SOURCES_OF_A_LANE - 1, 0.0, MOST) == 1


def test_a_late_merge_takes_every_lane() -> None:
    assert merges_at_once(1, LATE_SEC + 1, MOST) == MOST


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.floats(0, 10**6), st.integers(1, 256))
def test_more_debt_never_means_fewer_merges(one: int, other: int, oldest_sec: float, most: int) -> None:
    small, large = sorted((one, other))
    lanes = merges_at_once(small, oldest_sec, most)
    assert 1 <= lanes <= merges_at_once(large, oldest_sec, most) <= most


def test_debt_adds_up_and_ages_from_its_first_note() -> None:
    debt: MergeDebt[str] = MergeDebt()
    debt.note("a", 10, 1000, now_sec=5.0)
    debt.note("b", 20, 500, now_sec=9.0)
    debt.note("a", 12, 1200, now_sec=15.0)
    assert (debt.segments, debt.size_bytes, debt.oldest_sec(20.0)) == (32, 1700, 15.0)
    debt.paid("a", 10, 1000, now_sec=18.0)
    assert (debt.segments, debt.size_bytes, debt.oldest_sec(20.0)) == (22, 700, 11.0)
    debt.paid("b", 20, 500, now_sec=19.0)
    assert (debt.segments, debt.size_bytes, debt.oldest_sec(20.0)) == (2, 200, 2.0)


def test_debt_of_a_partition_led_elsewhere_is_forgotten() -> None:
    debt: MergeDebt[str] = MergeDebt()
    debt.note("a", 10, 1000, now_sec=1.0)
    debt.note("b", 3, 30, now_sec=2.0)
    debt.retain({"b"})
    assert (debt.segments, debt.size_bytes, debt.oldest_sec(3.0)) == (3, 30, 1.0)


def test_a_plan_counts_every_run_that_waits() -> None:
    backlog = segments([160] * (2500 + NEWEST_LEFT))
    plan = plan_with_debt(backlog, LIMITS)
    assert (len(plan.sources), plan.waiting_count, plan.waiting_bytes) == (1000, 2500, 2500 * 160)


@given(
    st.lists(st.integers(100, 10**8), min_size=1, max_size=120),
    st.integers(2, 12),
    st.sets(st.integers(0, 120), max_size=5),
)
def test_each_merge_reduces_the_segments_until_no_debt_is_left(
    sizes: list[int], min_segments: int, unreadable: set[int]
) -> None:
    limits = MergeLimits(target_bytes=LIMITS.target_bytes, min_segments=min_segments)
    references = SegmentReferences(segments(sizes))
    while (plan := plan_with_debt(tuple(references), limits, unreadable=unreadable)).sources:
        assert len(plan.sources) <= plan.waiting_count <= len(references)
        assert sum(one.size_bytes for one in plan.sources) <= plan.waiting_bytes <= references.size_bytes
        count = len(references)
        replaced: list[SegmentReference] = references.replace(merged(plan.sources))
        assert replaced == list(plan.sources)
        assert len(references) < count
    assert (plan.waiting_count, plan.waiting_bytes) == (0, 0)
