"""The number of merges that the store bears beside clients."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.log.life.merge_pressure import MergePressure

MOST = 16


def after(*seconds: float, most: int = MOST) -> MergePressure:
    pressure = MergePressure(most)
    for one in seconds:
        pressure.observe(one)
    return pressure


def test_merging_begins_with_one_merge_at_a_time() -> None:
    assert after().allowed == 1


def test_steady_writes_allow_the_most_merges() -> None:
    assert after(*[0.02] * 200).allowed == MOST


def test_writes_that_take_three_times_as_long_leave_one_merge() -> None:
    assert after(*[0.02] * 200, *[0.06] * 200).allowed == 1


def test_small_differences_of_fast_writes_change_nothing() -> None:
    assert after(*[0.001] * 200, *[0.004] * 200).allowed == MOST


def test_merging_recovers_when_writes_do() -> None:
    assert after(*[0.02] * 200, *[0.2] * 100, *[0.02] * 300).allowed == MOST


def test_a_store_that_stays_slower_is_not_pressure_in_the_end() -> None:
    assert after(*[0.02] * 200, *[0.1] * 5000).allowed == MOST


@given(st.lists(st.floats(0, 100), max_size=300), st.integers(1, 64))
def test_at_least_one_and_at_most_the_limit_are_allowed(seconds: list[float], most: int) -> None:
    assert 1 <= after(*seconds, most=most).allowed <= most
