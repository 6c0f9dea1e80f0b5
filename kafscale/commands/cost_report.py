"""The costs of a cluster in words: tables for people, an object for programs. Pure."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafscale.ops.metrics import NO_TOPIC, OTHER_TOPICS
from kafscale.ops.prices import DAYS_PER_MONTH, GB_BYTES, Prices
from kafscale.ops.report_text import MOST_LINES, table
from kafscale.tools.cost.intervals import FlushCost
from kafscale.tools.cost.rates import SECONDS_PER_MONTH, Rates
from kafscale.tools.cost.scrape import TopicCounts

_MEANINGS: Final = {
    NO_TOPIC: "requests that serve no topic (health, listings, the cluster's marker), and of deleted topics",
    OTHER_TOPICS: "topics beyond those that brokers count one by one",
}


def as_text(rates: Rates, intervals: Sequence[FlushCost]) -> str:
    """Tables of requests, of topics and of other ways to flush."""
    lines = [_heading(rates), _prices(rates.prices), ""]
    lines += [*table(list(_request_rows(rates))), ""]
    if not any(rates.total_requests.values()):
        lines += [
            "No request to a bucket has been counted: in a folder they cost nothing (KAFSCALE_S3_BUCKET is not set).",
            "",
        ]
    lines += table(list(_sum_rows(rates)))
    lines += _topic_lines(rates)
    if intervals:
        lines += ["", *table(list(_interval_rows(rates, intervals)))]
        lines += [
            "",
            "What another interval or budget would cost is an estimate: `kafscale cost --help` explains it.",
        ]
    return "\n".join(lines)


def warnings(rates: Rates) -> Iterator[str]:
    """Reasons why the figures are not what they seem."""
    if rates.cluster_brokers > len(rates.brokers):
        yield (
            f"the cluster has {rates.cluster_brokers} brokers, and --metrics names {len(rates.brokers)}: the rest of "
            "the bill is missing"
        )
    together = rates.request_dollars * SECONDS_PER_MONTH + rates.prices.of_stored(rates.stored_bytes)
    if rates.budget is not None and together > rates.budget:
        yield (
            f"{_money(together)} dollars a month are above KAFSCALE_COST_BUDGET_PER_MONTH={rates.budget:g}: "
            "docs/cost.md says what to change"
        )
    for broker in rates.brokers:
        if broker.restarted:
            yield (
                f"broker {broker.broker_id} has been restarted meanwhile: its rates are those of the "
                f"{broker.seconds:.0f} s since then"
            )


def as_object(rates: Rates, intervals: Sequence[FlushCost]) -> dict[str, Any]:
    """The same for programs. Amounts are US dollars."""
    requests = rates.request_dollars * SECONDS_PER_MONTH
    storage = rates.prices.of_stored(rates.stored_bytes)
    return {
        "days_per_month": DAYS_PER_MONTH,
        "gb_bytes": GB_BYTES,
        "prices": rates.prices.by_unit(),
        "budget_per_month": rates.budget,
        "flush_interval_ms": round(rates.flush_interval_sec * 1000),
        "cluster_brokers": rates.cluster_brokers,
        "brokers": [
            {
                "broker_id": broker.broker_id,
                "source": broker.source,
                "seconds": broker.seconds,
                "restarted": broker.restarted,
                "requests_per_month": broker.dollars * SECONDS_PER_MONTH,
            }
            for broker in rates.brokers
        ],
        "operations": [
            {
                "operation": operation,
                "requests_per_second": rates.requests[operation],
                "requests": rates.total_requests[operation],
                "dollars": rates.total_dollars.get(operation, 0.0),
                "dollars_per_month": rates.dollars.get(operation, 0.0) * SECONDS_PER_MONTH,
            }
            for operation in rates.requests
        ],
        "topics": [_topic_object(rates, name, topic) for name, topic in _by_dollars(rates)],
        "stored_bytes": rates.stored_bytes,
        "dollars_per_month": {"requests": requests, "storage": storage, "together": requests + storage},
        "flushes_per_sec": _finite(rates.flushes_per_sec),
        "journal_prices": rates.journal_prices.by_unit(),
        "flush_intervals": [
            {
                "flush_interval_ms": one.interval_ms,
                "flushes_per_sec": _finite(one.flushes_per_sec),
                "flushes_per_second": one.flushes,
                "requests_per_month": one.dollars * SECONDS_PER_MONTH,
            }
            for one in intervals
        ],
    }


def _heading(rates: Rates) -> str:
    seconds = [broker.seconds for broker in rates.brokers]
    how_long = (
        f"{min(seconds):,.0f}"
        if round(min(seconds)) == round(max(seconds))
        else (f"{min(seconds):,.0f} to {max(seconds):,.0f}")
    )
    brokers = f"{len(rates.brokers)} broker{'s' * (len(rates.brokers) != 1)}"
    return f"{brokers}, at the rates of {how_long} s; a month has {DAYS_PER_MONTH} days."


def _prices(prices: Prices) -> str:
    text = (
        f"Prices: ${prices.per_1000_puts:g} for 1,000 PUT, COPY, POST and LIST, ${prices.per_1000_gets:g} for 1,000 "
        f"GET and HEAD, ${prices.per_gb_month:g} for a GB and month"
    )
    if prices.per_gb_written or prices.per_gb_read:
        text += f", ${prices.per_gb_written:g} for a GB written, ${prices.per_gb_read:g} for a GB read"
    return f"{text} (KAFSCALE_PRICE_*)."


def _request_rows(rates: Rates) -> Iterator[tuple[str, ...]]:
    yield "REQUESTS", "A SECOND", "DOLLARS A MONTH", "SINCE START", "DOLLARS SINCE START"
    for operation, a_second in rates.requests.items():
        if rates.total_requests[operation]:
            yield (
                operation,
                f"{a_second:,.2f}",
                _money(rates.dollars.get(operation, 0.0) * SECONDS_PER_MONTH),
                f"{rates.total_requests[operation]:,.0f}",
                _small(rates.total_dollars.get(operation, 0.0)),
            )
    yield (
        "together",
        f"{sum(rates.requests.values()):,.2f}",
        _money(rates.request_dollars * SECONDS_PER_MONTH),
        f"{sum(rates.total_requests.values()):,.0f}",
        _small(sum(rates.total_dollars.values())),
    )


def _sum_rows(rates: Rates) -> Iterator[tuple[str, str]]:
    requests = rates.request_dollars * SECONDS_PER_MONTH
    storage = rates.prices.of_stored(rates.stored_bytes)
    yield "COST", "DOLLARS A MONTH"
    yield "requests", _money(requests)
    yield f"storage of {_gb(rates.stored_bytes)} GB", _money(storage)
    yield "together", _money(requests + storage)
    if rates.budget is not None:
        yield "budget", _money(rates.budget)


def _topic_lines(rates: Rates) -> Iterator[str]:
    found = _by_dollars(rates)
    if not found:
        return
    whole = sum(_dollars(rates, topic) for _, topic in found)
    rows = [
        (
            "TOPIC",
            "DOLLARS A MONTH",
            "SHARE",
            "WRITING",
            "READING",
            "STORED GB",
            "STORAGE",
            "SLICES A SECOND",
        )
    ]
    for name, topic in found[:MOST_LINES]:
        dollars = _dollars(rates, topic)
        rows.append(
            (
                name,
                _money(dollars),
                f"{dollars / whole:.1%}" if whole else "-",
                _money(topic.put_dollars * SECONDS_PER_MONTH),
                _money(topic.get_dollars * SECONDS_PER_MONTH),
                _gb(topic.stored_bytes),
                _money(rates.prices.of_stored(topic.stored_bytes)),
                f"{topic.flushes:,.2f}",
            )
        )
    yield ""
    yield from table(rows)
    if len(found) > MOST_LINES:
        yield f"and {len(found) - MOST_LINES} more: --json shows all"
    for name in (NO_TOPIC, OTHER_TOPICS):
        if name in rates.topics:
            yield f"{name}: {_MEANINGS[name]}"


def _interval_rows(rates: Rates, intervals: Sequence[FlushCost]) -> Iterator[tuple[str, ...]]:
    yield "FLUSH INTERVAL, MS", "FLUSHES_PER_SEC", "FLUSHES A SECOND", "REQUESTS, DOLLARS A MONTH"
    now_ms = round(rates.flush_interval_sec * 1000)
    for one in intervals:
        is_now = one.interval_ms == now_ms and one.flushes_per_sec == rates.flushes_per_sec
        budget = _finite(one.flushes_per_sec)
        yield (
            f"{one.interval_ms}{' (now)' * is_now}",
            "no limit" if budget is None else f"{budget:g}",
            f"{one.flushes:,.2f}",
            _money(one.dollars * SECONDS_PER_MONTH),
        )


def _finite(budget: float) -> float | None:
    """JSON has no infinity."""
    return None if math.isinf(budget) else budget


def _topic_object(rates: Rates, name: str, topic: TopicCounts) -> dict[str, Any]:
    return {
        "topic": name,
        "dollars_per_month": _dollars(rates, topic),
        "puts_per_month": topic.put_dollars * SECONDS_PER_MONTH,
        "gets_per_month": topic.get_dollars * SECONDS_PER_MONTH,
        "storage_per_month": rates.prices.of_stored(topic.stored_bytes),
        "stored_bytes": topic.stored_bytes,
        "partitions": topic.partitions,
        "flushes_per_second": topic.flushes,
        "batches_per_second": topic.batches,
        "bytes_in_per_second": topic.bytes_in,
    }


def _by_dollars(rates: Rates) -> list[tuple[str, TopicCounts]]:
    return sorted(rates.topics.items(), key=lambda item: (-_dollars(rates, item[1]), item[0]))


def _dollars(rates: Rates, topic: TopicCounts) -> float:
    """A topic's dollars a month: requests and storage."""
    requests = (topic.put_dollars + topic.get_dollars) * SECONDS_PER_MONTH
    return requests + rates.prices.of_stored(topic.stored_bytes)


def _money(dollars: float) -> str:
    return f"{dollars:,.2f}"


def _small(dollars: float) -> str:
    """An amount that may be far below a cent."""
    return f"{dollars:,.6f}" if dollars < 1 else _money(dollars)


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / GB_BYTES:,.2f}"
