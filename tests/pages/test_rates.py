"""Rates by second from two readings of counters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.pages.rates import (
    FIRST_WINDOW_SEC,
    LONGEST_WINDOW_SEC,
    MAX_POINTS,
    NO_COUNTS,
    SPACING_SEC,
    RateWindow,
    Sample,
    TopicCounts,
    rates_between,
)

COUNTS = st.builds(TopicCounts, *[st.integers(0, 10**12)] * 4)


class Counters:
    """A counter of one topic on a clock that the test moves."""

    def __init__(self) -> None:
        self.now_sec = 100.0
        self.bytes_in = 0.0
        self.slept_sec: list[float] = []
        self.window = RateWindow(self.read, self.sleep)

    def read(self) -> Sample:
        return Sample(at_sec=self.now_sec, topics={"orders": TopicCounts(bytes_in=self.bytes_in)})

    def sleep(self, seconds: float) -> None:
        self.slept_sec.append(seconds)
        self.pass_time(seconds, 10.0)

    def pass_time(self, seconds: float, bytes_per_sec: float) -> None:
        self.now_sec += seconds
        self.bytes_in += seconds * bytes_per_sec


@given(COUNTS, COUNTS, st.floats(0.001, 1000))
def test_rates_are_growth_by_time(before: TopicCounts, after: TopicCounts, seconds: float) -> None:
    rates = rates_between(
        Sample(at_sec=0, topics={"a": before}), Sample(at_sec=seconds, topics={"a": after, "b": after})
    )
    for old, new, rate in zip(before, after, rates.topics["a"], strict=True):
        assert rate * seconds == pytest.approx(new - old if new >= old else new)
    assert rates.total.bytes_in == pytest.approx(rates.topics["a"].bytes_in + rates.topics["b"].bytes_in)


def test_no_topics_have_no_rates() -> None:
    assert rates_between(Sample(at_sec=0), Sample(at_sec=1)).total == NO_COUNTS


def test_requests_and_dollars_have_rates_too() -> None:
    before = Sample(at_sec=0, requests={"PutObject": 4}, dollars={"PutObject": 0.5}, flushes=1)
    after = Sample(at_sec=2, requests={"PutObject": 8, "GetObject": 2}, dollars={"PutObject": 1.5}, flushes=5)
    rates = rates_between(before, after)
    assert (rates.requests, rates.dollars) == ({"PutObject": 2, "GetObject": 1}, {"PutObject": 0.5})
    assert rates.flushes == 2


def test_first_look_waits_for_a_window() -> None:
    counters = Counters()
    rates = counters.window.measure()
    assert counters.slept_sec == [FIRST_WINDOW_SEC]
    assert (rates.window_sec, rates.total.bytes_in) == (FIRST_WINDOW_SEC, 10.0)


def test_later_looks_do_not_wait_and_the_window_moves() -> None:
    counters = Counters()
    counters.window.measure()
    windows = []
    for _ in range(12):
        counters.pass_time(5, 20.0)
        windows.append(counters.window.measure().window_sec)
    assert counters.slept_sec == [FIRST_WINDOW_SEC]
    assert max(windows) < 2 * SPACING_SEC + 5
    assert counters.window.measure().total.bytes_in == 20.0


def test_a_look_after_a_long_time_measures_again() -> None:
    counters = Counters()
    counters.window.measure()
    counters.pass_time(LONGEST_WINDOW_SEC + 1, 1e6)
    assert counters.window.measure().total.bytes_in == 10.0
    assert counters.slept_sec == [FIRST_WINDOW_SEC] * 2


def test_points_are_bounded_in_number_and_age() -> None:
    counters = Counters()
    for _ in range(2 * MAX_POINTS):
        counters.pass_time(5, 1.0)
        rates = counters.window.measure()
    assert len(rates.points) == MAX_POINTS
    counters.pass_time(3600, 1.0)
    assert len(counters.window.measure().points) == 1
