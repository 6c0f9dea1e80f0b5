"""When a broker writes its next entry: at once where that costs little, and never more often than is paid for."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.log.writing.flush_pacer import (
    ENOUGH_BATCHES,
    ENOUGH_BYTES,
    GATHER_SEC,
    SAVED_SEC,
    SPACING,
    FlushPacer,
    FlushPolicy,
    Waiting,
)

MIB = 1024 * 1024
NOW_MS = 1_700_000_000_000


def policy(per_sec: float = 4, *, interval_ms: int = 500, in_flight: int = 4) -> FlushPolicy:
    return FlushPolicy(
        interval_ms=interval_ms, entry_bytes=8 * MIB, flushes_per_sec=per_sec, in_flight=in_flight
    )


def delay(
    pacer: FlushPacer, *, age_ms: int = 0, size_bytes: int = 1, in_flight: int = 0, urgent: bool = False,
    batches: int = 1, now_sec: float = 0.0,
) -> float | None:  # fmt: skip
    waiting = Waiting(since_ms=NOW_MS - age_ms, size_bytes=size_bytes, batches=batches, is_urgent=urgent)
    return pacer.delay_sec(waiting, in_flight, now_sec, NOW_MS)


def test_the_first_record_is_flushed_at_once() -> None:
    assert delay(FlushPacer(policy(), 0.0)) == 0


def test_what_comes_during_a_flush_gathers_until_it_is_old() -> None:
    assert delay(FlushPacer(policy(), 0.0), age_ms=100, in_flight=1) == 0.4


@pytest.mark.parametrize("why", [{"age_ms": 500}, {"size_bytes": 8 * MIB}, {"urgent": True}])
def test_what_is_due_does_not_wait_for_a_flush_in_flight(why: dict[str, int]) -> None:
    pacer = FlushPacer(policy(0), 0.0)
    assert delay(pacer, in_flight=3, **why) == 0  # type: ignore[arg-type]


def test_at_the_limit_of_flushes_in_flight_the_next_one_waits() -> None:
    assert delay(FlushPacer(policy(in_flight=2), 0.0), age_ms=10_000, in_flight=2, urgent=True) is None


def test_without_saved_puts_it_waits_for_one_or_the_interval() -> None:
    pacer = FlushPacer(policy(4), 0.0)
    for _ in range(int(4 * SAVED_SEC)):
        assert delay(pacer) == 0
        pacer.began(0.0)
    assert delay(pacer) == pytest.approx(0.25)
    assert delay(pacer, age_ms=450) == pytest.approx(0.05)
    assert delay(pacer, now_sec=0.25) == 0


@given(per_sec=st.sampled_from([0.3, 3, 4, 7.7, 1000]), pauses=st.lists(st.floats(0, 3), max_size=100))
def test_wait_for_the_budget_ends_when_it_is_over(per_sec: float, pauses: list[float]) -> None:
    """Rounding left a wait so short that the clock was the same after it: a simulation's time stood still."""
    pacer, now_sec = FlushPacer(policy(per_sec, interval_ms=1_000_000), 0.0), 9.679657268712177
    for pause_sec in pauses:
        now_sec += pause_sec
        wait_sec = delay(pacer, now_sec=now_sec)
        assert wait_sec is not None
        now_sec += wait_sec
        assert delay(pacer, now_sec=now_sec) == 0
        pacer.began(now_sec)


def test_with_no_puts_to_save_everything_waits_for_the_interval() -> None:
    assert delay(FlushPacer(policy(0), 0.0), age_ms=200) == 0.3


def test_in_a_folder_nothing_is_counted() -> None:
    pacer = FlushPacer(policy(math.inf), 0.0)
    for _ in range(10_000):
        pacer.began(0.0)
    assert delay(pacer) == 0


def test_a_clock_that_was_set_back_keeps_nothing_waiting() -> None:
    assert delay(FlushPacer(policy(0), 0.0), age_ms=-60_000, in_flight=1) == 0


@given(
    per_sec=st.integers(1, 50),
    interval_ms=st.integers(1, 2_000),
    pauses=st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_flushes_stay_within_what_is_paid_for(per_sec: int, interval_ms: int, pauses: list[float]) -> None:
    """With little waiting and nothing in flight: at most the budget, or one for each interval."""
    pacer = FlushPacer(policy(per_sec, interval_ms=interval_ms), 0.0)
    now_sec, flushes = 0.0, 0
    for pause_sec in pauses:
        now_sec += pause_sec
        waiting = Waiting(since_ms=round(now_sec * 1000), size_bytes=1)
        wait_sec = pacer.delay_sec(waiting, 0, now_sec, round(now_sec * 1000))
        assert wait_sec is not None
        assert 0 <= wait_sec <= interval_ms / 1000 + 1e-9
        now_sec += wait_sec
        pacer.began(now_sec)
        flushes += 1
    per_interval = now_sec / (interval_ms / 1000)
    assert flushes <= per_sec * (SAVED_SEC + now_sec) + per_interval + 1


def test_wait_for_the_budget_is_counted_once() -> None:
    pacer = FlushPacer(policy(4), 0.0)
    for _ in range(int(4 * SAVED_SEC)):
        assert pacer.began(0.0) == 0.0
    assert delay(pacer) == pytest.approx(0.25)
    assert delay(pacer, now_sec=0.1) == pytest.approx(0.15)
    assert pacer.began(0.25) == 0.25
    assert pacer.began(0.5) == 0.0


def test_wait_for_a_flush_or_its_interval_is_not_the_budgets() -> None:
    pacer = FlushPacer(policy(4), 0.0)
    assert delay(pacer, in_flight=1) == 0.5
    assert pacer.began(0.5) == 0.0


def gathering(acknowledged: int, waiting: int) -> FlushPacer:
    """A pacer whose last entry ended at second 1 with so many batches, while so many waited for the next one."""
    pacer = FlushPacer(policy(math.inf), 0.0)
    pacer.ended(acknowledged, waiting, 1.0)
    return pacer


def test_what_was_acknowledged_is_expected_again() -> None:
    pacer = gathering(acknowledged=1, waiting=4)
    assert delay(pacer, batches=4, now_sec=1.0) == pytest.approx(GATHER_SEC)
    assert not pacer.may_be_due(1, 4)
    assert pacer.may_be_due(1, 5)
    assert delay(pacer, batches=5, now_sec=1.0) == 0


def test_expected_batches_are_not_waited_for_longer() -> None:
    assert delay(gathering(5, 0), now_sec=1.0 + GATHER_SEC) == 0


def test_producer_that_waits_for_each_batch_is_not_delayed() -> None:
    assert delay(gathering(acknowledged=1, waiting=0), now_sec=1.0) == 0


@pytest.mark.parametrize(
    "enough",
    [{"batches": ENOUGH_BATCHES}, {"size_bytes": ENOUGH_BYTES}, {"urgent": True}, {"age_ms": 500}],
)
def test_enough_waits_for_nothing_more(enough: dict[str, int]) -> None:
    pacer = gathering(1000, 1000)
    assert delay(pacer, now_sec=1.0) == pytest.approx(GATHER_SEC)
    assert delay(pacer, now_sec=1.0, **enough) == 0  # type: ignore[arg-type]


def test_flush_interval_of_zero_gathers_and_has_no_budget() -> None:
    pacer = FlushPacer(policy(0, interval_ms=0), 0.0)
    assert delay(pacer, now_sec=0.5) == 0
    pacer.ended(5, 0, 1.0)
    assert delay(pacer, now_sec=1.0) == pytest.approx(GATHER_SEC)
    assert delay(pacer, age_ms=2, now_sec=1.0 + GATHER_SEC) == 0
    assert pacer.began(1.0 + GATHER_SEC) == 0.0, "no budget has kept it"


def spacing(interval_ms: int = 0, *, put_sec: float = 0.1) -> FlushPacer:
    """A pacer whose last entry began at second 1, of a store whose PUTs take so long."""
    pacer = FlushPacer(policy(math.inf, interval_ms=interval_ms), 0.0)
    pacer.put_took(put_sec)
    pacer.began(1.0)
    return pacer


def test_entries_beside_one_another_are_spaced() -> None:
    pacer = spacing(put_sec=0.1)
    assert delay(pacer, in_flight=1, now_sec=1.01) == pytest.approx(SPACING * 0.1 - 0.01)
    assert delay(pacer, in_flight=3, now_sec=1.01) == pytest.approx(3 * SPACING * 0.1 - 0.01)
    assert delay(pacer, in_flight=3, now_sec=1.0 + 3 * SPACING * 0.1) == 0
    assert delay(pacer, in_flight=0, now_sec=1.01) == 0, "nothing is beside it"


@pytest.mark.parametrize("enough", [{"size_bytes": ENOUGH_BYTES}, {"urgent": True}])
def test_large_and_urgent_entries_need_no_space(enough: dict[str, int]) -> None:
    pacer = spacing()
    assert delay(pacer, in_flight=1, now_sec=1.01) != 0
    assert not pacer.may_be_due(ENOUGH_BYTES - 1, 1000)
    assert pacer.may_be_due(ENOUGH_BYTES, 1)
    assert delay(pacer, in_flight=1, now_sec=1.01, **enough) == 0  # type: ignore[arg-type]


def test_the_interval_and_the_space_pass_side_by_side() -> None:
    pacer = spacing(interval_ms=50, put_sec=0.1)
    assert delay(pacer, in_flight=2, age_ms=10, now_sec=1.01) == pytest.approx(2 * SPACING * 0.1 - 0.01)
    assert delay(pacer, in_flight=2, age_ms=0, now_sec=1.06) == pytest.approx(0.05)
    assert delay(pacer, in_flight=2, age_ms=50, now_sec=1.08) == 0


def test_before_any_put_is_known_nothing_is_spaced() -> None:
    assert delay(FlushPacer(policy(interval_ms=0), 0.0), in_flight=1) == 0


def test_what_is_shorter_than_a_timer_is_no_space() -> None:
    assert delay(spacing(put_sec=0.001), in_flight=1, now_sec=1.0) == 0


@given(median_ms=st.integers(20, 500), seed=st.integers(0, 2**32 - 1), first_sec=st.floats(0.001, 5))
def test_the_usual_put_becomes_the_median(median_ms: int, seed: int, first_sec: float) -> None:
    pacer, rng = FlushPacer(policy(interval_ms=0), 0.0), random.Random(seed)
    pacer.put_took(first_sec)
    for _ in range(500):
        pacer.put_took(median_ms / 1000 * math.exp(rng.gauss(0, 0.7)))
    pacer.began(1.0)
    space_sec = delay(pacer, in_flight=1, now_sec=1.0)
    assert space_sec is not None
    usual_sec = space_sec / SPACING
    assert median_ms / 2000 < usual_sec < median_ms / 500


def test_gathering_is_no_wait_for_the_budget() -> None:
    pacer = gathering(5, 0)
    assert delay(pacer, now_sec=1.0) == pytest.approx(GATHER_SEC)
    assert pacer.began(1.0 + GATHER_SEC) == 0.0


@given(
    acknowledged=st.integers(0, 40), waiting=st.integers(0, 40), batches=st.integers(1, 40), later_sec=st.floats(0, 1)
)  # fmt: skip
def test_gathering_delays_by_its_limit_at_most(
    acknowledged: int, waiting: int, batches: int, later_sec: float
) -> None:
    pacer = gathering(acknowledged, waiting)
    wait_sec = delay(pacer, batches=batches, now_sec=1.0 + later_sec)
    assert wait_sec is not None
    assert 0 <= wait_sec <= GATHER_SEC + 1e-9
    # A batch that makes no difference to one that decides anew makes none to the decision.
    assert pacer.may_be_due(1, batches + 1) == (
        wait_sec > 0 and batches + 1 >= min(acknowledged + waiting, ENOUGH_BATCHES)
    )
