"""The cost of another flush interval or budget of flushes, from what is measured at the present ones. Pure.

`kafscale cost --help` and docs/cost.md have the formula in words. A flush is one entry of the journal and one PUT for
all partitions of a broker: neither their number nor their topics matter.
"""

import math
from dataclasses import dataclass
from typing import Final

from kafscale.ops.prices import Operation
from kafscale.settings.broker import Settings
from kafscale.tools.cost.rates import BrokerRate, Rates

USUAL_INTERVALS_MS: Final = (100, 250, 500, 1000, 2000, 5000, 10_000)
USUAL_BUDGETS: Final = (0.0, 1.0, 2.0, 4.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushCost:
    """An interval and a budget, the flushes a second of all brokers then, and the requests' dollars a second."""

    interval_ms: int
    flushes_per_sec: float
    flushes: float
    dollars: float


def entries_per_sec(
    batches_per_sec: float,
    bytes_per_sec: float,
    interval_sec: float,
    flushes_per_sec: float,
    flush_bytes: int = Settings.flush_bytes,
) -> float:
    """The entries of one broker: at once as far as the budget goes, by the age of the oldest record, or full.

    For PUTs that are fast beside the interval; with the interval 0, entries follow the store's latency.
    """
    if batches_per_sec <= 0:
        return 0.0
    at_once = min(flushes_per_sec, batches_per_sec)
    by_age = 1 / (interval_sec + 1 / batches_per_sec)
    return max(at_once, by_age, bytes_per_sec / flush_bytes)


def flush_costs(
    rates: Rates, intervals_ms: tuple[int, ...], budgets: tuple[float, ...]
) -> tuple[FlushCost, ...]:
    """The costs at other intervals with the present budget, then with other budgets at the present interval.

    None where nothing is flushed.
    """
    if not any(broker.entries for broker in rates.brokers):
        return ()
    now_ms, budget = round(rates.flush_interval_sec * 1000), rates.flushes_per_sec
    choices = [(interval_ms, budget) for interval_ms in sorted(set(intervals_ms))]
    choices += [(now_ms, one) for one in sorted({*budgets} - {budget})]
    return tuple(_cost(rates, interval_ms, one) for interval_ms, one in choices)


def _cost(rates: Rates, interval_ms: int, budget: float) -> FlushCost:
    flushes_now = sum(broker.entries for broker in rates.brokers)
    flushes = sum(_entries_then(rates, broker, interval_ms / 1000, budget) for broker in rates.brokers)
    puts = (flushes - flushes_now) * rates.journal_prices.of_request(Operation.PUT_OBJECT)
    more_reads = rates.followed_entries * (flushes / flushes_now - 1)
    gets = more_reads * rates.journal_prices.of_request(Operation.GET_OBJECT)
    dollars = max(0.0, rates.request_dollars + puts + gets)
    return FlushCost(interval_ms=interval_ms, flushes_per_sec=budget, flushes=flushes, dollars=dollars)


def _entries_then(rates: Rates, broker: BrokerRate, interval_sec: float, budget: float) -> float:
    """As many times as many as now as the formula has for then and now: it need not describe the present exactly."""

    def expected(interval_sec: float, budget: float) -> float:
        return entries_per_sec(broker.batches, broker.bytes_in, interval_sec, budget)

    if not broker.entries or not broker.batches:
        return broker.entries
    budget_now = rates.flushes_per_sec
    if math.isinf(budget_now) or not rates.flush_interval_sec:
        budget_now = max(budget_now if math.isfinite(budget_now) else 0.0, broker.entries)
    now = expected(rates.flush_interval_sec or math.inf, budget_now)
    return broker.entries * expected(interval_sec, min(budget, broker.batches)) / now
