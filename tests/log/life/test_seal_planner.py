"""Slices become a segment when there is enough of them, when they are old, and when there are too many."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.journal.partition_state import unsealed
from kafscale.log.life.seal_planner import (
    GATHER_FROM,
    MOST_BYTES,
    MOST_GATHERED,
    SealLimits,
    SealPlan,
    SealStep,
    plan_seal,
)

LIMITS = SealLimits(worthwhile_bytes=1000, max_age_ms=60_000)


def slices(*sizes: int, first: int = 0) -> tuple[SegmentReference, ...]:
    return tuple(
        SegmentReference(
            base_offset=first + number,
            last_offset=first + number,
            record_count=1,
            leader_epoch=0,
            size_bytes=size,
            max_timestamp_ms=-1,
            object_key=f"_kafscale/default/journals/a/{number:020d}.entry",
            start=100,
        )
        for number, size in enumerate(sizes)
    )


def sealed(found: tuple[SegmentReference, ...]) -> SealPlan:
    return SealPlan(SealStep.SEAL, found)


def gathered(found: SegmentReference) -> SegmentReference:
    return found._replace(object_key="_kafscale/default/gathered/a/00000000000000000000.gathered")


def test_little_that_is_new_is_gathered() -> None:
    found = slices(100, 100)
    assert plan_seal(found, 1_000, LIMITS) == SealPlan(SealStep.GATHER, found)


def test_what_is_gathered_waits() -> None:
    found = slices(100, 100, 100)
    assert plan_seal((gathered(found[0]), gathered(found[1])), 1_000, LIMITS) == SealPlan(SealStep.WAIT)
    assert plan_seal((gathered(found[0]), found[1]), 1_000, LIMITS) == SealPlan(SealStep.WAIT)
    later = slices(100, 100, first=1)
    assert plan_seal((gathered(found[0]), *later), 1_000, LIMITS) == SealPlan(SealStep.GATHER, later)


def test_what_is_gathered_counts_with_the_rest() -> None:
    found = slices(400, 400, 200)
    some = (gathered(found[0]), gathered(found[1]), found[2])
    assert plan_seal(some, 0, LIMITS) == sealed(some)


def test_enough_is_sealed_at_once() -> None:
    found = slices(400, 400, 200)
    assert plan_seal(found, 0, LIMITS) == sealed(found)


def test_what_is_old_is_sealed_however_little() -> None:
    found = slices(60)
    assert plan_seal(found, 60_000, LIMITS) == sealed(found)


def test_many_that_are_gathered_are_sealed_however_small() -> None:
    found = tuple(gathered(one) for one in slices(*[1] * MOST_GATHERED))
    assert plan_seal(found, 0, LIMITS) == sealed(found)
    assert plan_seal(found[1:], 0, LIMITS) == SealPlan(SealStep.WAIT)


def test_many_small_entries_are_gathered_for_one_put() -> None:
    """At four flushes a second, a minute and a little had cost two PUTs for every partition."""
    found = slices(*[1] * MOST_GATHERED)
    assert plan_seal(found, 0, LIMITS) == SealPlan(SealStep.GATHER, found)


def test_without_slices_there_is_nothing_to_seal() -> None:
    assert plan_seal((), 10**9, LIMITS) == SealPlan(SealStep.WAIT)


def test_one_segment_takes_only_so_much() -> None:
    found = slices(MOST_BYTES - 1, 2, 2)
    assert plan_seal(found, 0, LIMITS) == sealed(found[:1])


@given(st.lists(st.integers(1, MOST_BYTES * 2), max_size=50), st.integers(0, 120_000))
def test_a_plan_is_the_beginning_of_what_waits(sizes: list[int], waiting_ms: int) -> None:
    found = slices(*sizes)
    plan = plan_seal(found, waiting_ms, LIMITS)
    planned = plan.sources
    assert planned == found[: len(planned)]
    is_due = sum(sizes) >= 1000 or (bool(sizes) and waiting_ms >= 60_000)
    assert (plan.step is SealStep.SEAL) == is_due
    if is_due:
        assert len(planned) == 1 or 0 < sum(one.size_bytes for one in planned) <= MOST_BYTES
    else:
        assert planned == (found if len(found) >= GATHER_FROM else ())


@given(st.integers(0, 5), st.integers(0, 5))
def test_slices_are_the_references_behind_the_last_segment(sealed: int, waiting: int) -> None:
    references = [one._replace(object_key="", start=0) for one in slices(*[60] * sealed)]
    behind = slices(*[60] * waiting, first=sealed)
    assert unsealed((*references, *behind)) == behind
