"""Rates and token buckets: against naive ones, and in the long run."""

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.security.rates import SlidingRate, TokenBucket, Windows

WINDOWS = Windows(11, 1000)

steps = st.lists(
    st.tuples(st.integers(0, 4000), st.integers(1, 10**6)), min_size=1, max_size=60
)  # milliseconds since the step before, amount
windows = st.builds(Windows, st.integers(1, 12), st.sampled_from([1, 100, 1000, 3000]))


def naive_rate(events: list[tuple[int, int]], now_ms: int, windows: Windows) -> tuple[float, float]:
    """The sum and its time, from all events: grouped into windows, those without an event in the span left out."""
    groups: list[list[tuple[int, int]]] = []
    for at_ms, amount in events:
        if groups and at_ms - groups[-1][0][0] < windows.size_ms:
            groups[-1].append((at_ms, amount))
        else:
            groups.append([(at_ms, amount)])
    kept = [group for group in groups if now_ms - group[-1][0] < windows.number * windows.size_ms]
    elapsed_ms = now_ms - kept[0][0][0] if kept else 0
    full = elapsed_ms // windows.size_ms
    elapsed_ms += max(0, windows.number - 1 - full) * windows.size_ms
    return sum(amount for group in kept for _, amount in group), max(1, elapsed_ms)


@given(steps, windows, st.integers(0, 50_000), st.integers(1, 10**5))
def test_sliding_rate_is_that_of_a_naive_one(
    steps: list[tuple[int, int]], windows: Windows, later_ms: int, limit: int
) -> None:
    rate = SlidingRate(windows)
    times = list(accumulate(wait for wait, _ in steps))
    events = [(at_ms, amount) for at_ms, (_, amount) in zip(times, steps, strict=True)]
    for number, (at_ms, amount) in enumerate(events, 1):
        rate.add(amount, at_ms)
        total, elapsed_ms = naive_rate(events[:number], at_ms, windows)
        assert rate.per_sec(at_ms) == pytest.approx(total * 1000 / elapsed_ms)
        expected_ms = round(max(0.0, total * 1000 / limit - elapsed_ms))
        assert rate.delay_ms(limit, at_ms) == pytest.approx(min(expected_ms, 2**31 - 1), abs=1)
    now_ms = times[-1] + later_ms
    total, elapsed_ms = naive_rate(events, now_ms, windows)
    assert rate.per_sec(now_ms) == pytest.approx(total * 1000 / elapsed_ms)
    assert rate.is_unused(limit, now_ms) == (total == 0)


@given(st.lists(st.integers(1, 50_000), min_size=200, max_size=200), st.sampled_from([10_000, 50_000]))
def test_client_that_waits_as_told_gets_its_rate(amounts: list[int], limit: int) -> None:
    """A client that always has more to send: all it sent, over the time that it took, is about its limit.

    As in Kafka a window is forgotten as a whole. What a client may gain by it in each span is its longest wait.
    """
    rate, now_ms, sent = SlidingRate(WINDOWS), 0, 0
    for amount in amounts:
        rate.add(amount, now_ms)
        sent += amount
        now_ms += 1 + rate.delay_ms(limit, now_ms)
    allowed = limit * (now_ms + WINDOWS.span_ms) / 1000
    longest_wait_ms = 1000 * max(amounts) / limit
    assert sent <= (1 + longest_wait_ms / WINDOWS.span_ms) * allowed
    assert sent >= 0.9 * limit * now_ms / 1000 or now_ms < 2 * WINDOWS.span_ms


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 300)), min_size=1, max_size=60),
    st.integers(1, 20),
)
def test_token_bucket_is_that_of_a_naive_one(steps: list[tuple[int, int]], limit: int) -> None:
    bucket, most = TokenBucket(WINDOWS), float(limit * 11)
    now_ms, tokens = 0, most
    for wait_ms, amount in steps:
        now_ms += wait_ms
        tokens = min(most, tokens + limit * wait_ms / 1000)
        assert bucket.is_unused(limit, now_ms) == (tokens == pytest.approx(most)) or math.isclose(
            tokens, most
        )
        bucket.take(amount, limit, now_ms)
        tokens -= amount
        delay_ms = bucket.delay_ms(limit, now_ms)
        assert delay_ms == pytest.approx(max(0.0, -tokens / limit * 1000), abs=1)


def test_new_client_has_all_but_one_window_at_once() -> None:
    rate = SlidingRate(WINDOWS)
    rate.add(10_000, 0)
    assert rate.delay_ms(1000, 0) == 0
    rate.add(1000, 0)
    assert rate.delay_ms(1000, 0) == 1000


def test_amount_taken_back_does_not_count() -> None:
    rate = SlidingRate(WINDOWS)
    rate.add(50_000, 0)
    rate.add(-50_000, 0)
    assert rate.per_sec(0) == 0


def test_tokens_come_back_at_the_limit() -> None:
    """KIP-599's example: a burst of 560 at 5 a second over 100 windows waits 12 seconds."""
    bucket = TokenBucket(Windows(100, 1000))
    bucket.take(560, 5, 0)
    assert bucket.delay_ms(5, 0) == 12_000
    assert bucket.delay_ms(5, 11_000) == 1000
    assert bucket.delay_ms(5, 12_000) == 0
