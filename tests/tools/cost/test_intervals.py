"""The estimate for another flush interval or budget, against the model that docs/sizing.md is made of."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.ops.prices import EXPRESS_ONE_ZONE, Operation, Prices
from kafscale.tools.cost.intervals import entries_per_sec, flush_costs
from kafscale.tools.cost.rates import Rates, rates
from scripts import sizing
from tests.tools.cost.scrapes import scrape, topic

DAY_SEC = 86_400
LOAD = sizing.Load(partitions=30, batches_per_sec=1, bytes_per_sec=100_000, hedged_percent=0)


def measured(load: sizing.Load, reads: float = 0, journals: Prices | None = None) -> Rates:
    """The metrics of brokers after a day of such a load, by the model."""
    calls, prices = sizing.calls_in_a_day(load), Prices()
    dollars = {
        "PutObject": calls.dollars_a_month(prices, journals) / 30,
        "GetObject": reads * prices.of_request(Operation.GET_OBJECT),
    }
    share = load.partitions / load.brokers
    counts = topic(
        batches=load.batches_per_sec * share * DAY_SEC, bytes_in=load.bytes_per_sec * share * DAY_SEC
    )
    brokers = [
        scrape(
            DAY_SEC,
            broker_id=str(number),
            flush_interval_sec=load.flush_interval_ms / 1000,
            flushes_per_sec=load.flushes_per_sec,
            journal_prices=journals or prices,
            dollars={name: value / load.brokers for name, value in dollars.items()},
            topics={"orders": counts},
            entries=load.entries_per_sec * DAY_SEC / load.brokers,
            followed_entries=calls.entry_gets / load.brokers,
        )
        for number in range(load.brokers)
    ]
    return rates([], brokers)


@pytest.mark.parametrize("batches_per_sec", [0.01, 0.1, 1, 10])
@pytest.mark.parametrize("other_ms", [100, 500, 2000, 10_000])
@pytest.mark.parametrize("other_budget", [0.0, 1.0, 4.0, 100.0])
@pytest.mark.parametrize("following", [0, 3])
def test_estimate_is_near_the_model(
    batches_per_sec: float, other_ms: int, other_budget: float, following: int
) -> None:
    before = replace(LOAD, batches_per_sec=batches_per_sec, following=following)
    after = replace(before, flush_interval_ms=other_ms, flushes_per_sec=other_budget)
    found = flush_costs(measured(before), (other_ms,), ())
    by_interval = replace(before, flush_interval_ms=other_ms)
    assert found[0].flushes == pytest.approx(by_interval.entries_per_sec)
    found = flush_costs(measured(replace(before, flush_interval_ms=other_ms)), (), (other_budget,))
    if other_budget != before.flushes_per_sec:
        assert found[0].flushes == pytest.approx(after.entries_per_sec)
        expected = sizing.calls_in_a_day(after).dollars_a_month(Prices())
        assert found[0].dollars * 30 * DAY_SEC == pytest.approx(expected, rel=0.02)


def test_present_interval_and_budget_cost_what_is_measured() -> None:
    found = measured(LOAD)
    (estimate,) = flush_costs(found, (LOAD.flush_interval_ms,), (LOAD.flushes_per_sec,))
    assert estimate.dollars == pytest.approx(found.request_dollars)
    assert estimate.flushes == pytest.approx(LOAD.entries_per_sec)


def test_number_of_partitions_does_not_matter() -> None:
    many = replace(LOAD, partitions=3000, batches_per_sec=0.01, bytes_per_sec=1000)
    few, more = flush_costs(measured(LOAD), (), (1.0,)), flush_costs(measured(many), (), (1.0,))
    assert few[0].flushes == pytest.approx(more[0].flushes)


def test_reads_by_consumers_stay_as_they_are() -> None:
    (small,), (large,) = (flush_costs(measured(LOAD, reads), (), (1.0,)) for reads in (0, 1e6))
    assert large.dollars - small.dollars == pytest.approx(1e6 * 4e-7 / DAY_SEC)


def test_entries_have_the_journal_buckets_price() -> None:
    found = measured(LOAD, journals=EXPRESS_ONE_ZONE)
    (estimate,) = flush_costs(found, (), (2.0,))
    saved = found.request_dollars - estimate.dollars
    assert saved == pytest.approx((LOAD.entries_per_sec - estimate.flushes) * 0.00113 / 1000)


def test_without_a_limit_the_present_is_kept_as_it_is() -> None:
    found = measured(replace(LOAD, flushes_per_sec=100.0))
    unlimited = replace(found, flushes_per_sec=math.inf)
    (estimate,) = flush_costs(unlimited, (500,), ())
    assert estimate.flushes == pytest.approx(sum(broker.entries for broker in found.brokers))


def test_nothing_flushed_gives_no_estimate() -> None:
    assert flush_costs(rates([], [scrape()]), (100, 500), (1.0,)) == ()


def test_full_entries_are_flushed_at_any_interval() -> None:
    assert entries_per_sec(100, 80 * 2**20, 60, 0) == 10
    assert entries_per_sec(0, 0, 0.5, 4) == 0


RATES = st.floats(0.001, 1000)


@given(RATES, st.floats(0, 1e9), st.lists(st.floats(0.001, 100), min_size=2), st.floats(0, 100))
def test_longer_interval_never_flushes_more(
    batches: float, size_bytes: float, intervals: list[float], budget: float
) -> None:
    found = [entries_per_sec(batches, size_bytes, one, budget) for one in sorted(intervals)]
    assert all(one >= next_one for one, next_one in pairwise(found))


@given(RATES, st.floats(0, 1e9), st.floats(0.001, 100), st.lists(st.floats(0, 100), min_size=2))
def test_smaller_budget_never_flushes_more(
    batches: float, size_bytes: float, interval: float, budgets: list[float]
) -> None:
    found = [entries_per_sec(batches, size_bytes, interval, one) for one in sorted(budgets)]
    assert all(one <= next_one for one, next_one in pairwise(found))
