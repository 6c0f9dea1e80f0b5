"""Figures that the page's own thread reads: sizes by topic, lag by group and topic, times of histograms."""

import asyncio
from collections.abc import AsyncIterator
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.groups.share.lag import ShareLagRow
from kafscale.ops.histogram import Histogram
from kafscale.ops.metrics import Metrics
from kafscale.pages.figures import FRESH_SEC, FigureReader, LagRow, LagTable, LagTotal, times_of
from kafscale.pages.rates import FIRST_WINDOW_SEC
from tests.pages.shown_broker import ShownBroker, shown_broker

BOUNDS = (0.1, 1.0, 10.0)


@pytest.fixture
async def shown() -> AsyncIterator[ShownBroker]:
    async with shown_broker() as shown:
        await shown.broker.create_topic("orders", 2)
        await shown.produce("orders", 0, 10)
        await shown.produce("orders", 0, 5)
        await shown.commit("billing", {("orders", 0): 12})
        yield shown


async def test_sizes_are_those_of_the_partitions_led(shown: ShownBroker) -> None:
    parts = shown.broker.process.shown()
    assert parts is not None
    stored = await asyncio.to_thread(parts.logs.stored_by_topic)
    partitions = [shown.broker.partition("orders", index) for index in (0, 1)]
    loaded = [one.references for one in partitions if one.references is not None]
    assert (stored["orders"].partitions, stored["orders"].loaded) == (2, len(loaded))
    assert (stored["orders"].offsets, stored["orders"].segments) == (15, sum(map(len, loaded)))
    assert stored["orders"].size_bytes == sum(one.size_bytes for one in loaded) > 0


async def test_figures_are_read_once_in_a_while(shown: ShownBroker) -> None:
    parts = shown.broker.process.shown()
    assert parts is not None
    reader = FigureReader(shown.broker.metrics, shown.clock.read, shown.clock.sleep)
    first = await asyncio.to_thread(reader.read, parts)
    assert first.rates.window_sec == FIRST_WINDOW_SEC
    assert (first.topics, first.group_ids) == (("orders",), ("billing",))
    assert first.lag is not None
    assert first.lag.rows == (LagRow("billing", "orders", 0, 12, 15),)
    assert await asyncio.to_thread(reader.read, parts) is first
    shown.clock.now_sec += FRESH_SEC
    assert await asyncio.to_thread(reader.read, parts) is not first


def test_lag_is_not_known_where_the_end_is_older() -> None:
    table = LagTable(
        (
            LagRow("a", "t", 0, 5, 9),
            LagRow("a", "t", 1, 5, None),
            LagRow("a", "u", 0, 5, 4),
            LagRow("b", "t", 0, 9, 9),
        ),
        omitted=0,
    )
    shared = ShareLagRow("s", "t", 0, 5, 4, 2, 1, 0)
    assert LagRow("s", "t", 0, 5, 4, shared).lag == 0, "an end older than a share group's state"
    assert LagRow("s", "t", 0, -1, 4, shared._replace(lag=None)).lag is None
    assert [row.lag for row in table.rows] == [4, None, None, 0]
    assert table.by_group == {"a": LagTotal(4, 3, 2), "b": LagTotal(0, 1, 0)}
    assert table.by_topic == {"t": LagTotal(4, 3, 1), "u": LagTotal(0, 1, 1)}
    assert table.total == LagTotal(4, 4, 2)
    assert LagTable((), omitted=0).total == LagTotal(0, 0, 0)


@given(st.lists(st.sampled_from([0.05, 0.5, 5.0, 50.0]), max_size=300))
def test_99_of_100_are_within_the_bound(observed: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in observed:
        histogram.observe(value)
    times = times_of(histogram)
    assert times.count == len(observed)
    assert times.total_sec == pytest.approx(sum(observed))
    assert sum(value <= times.p99_sec for value in observed) * 100 >= 99 * len(observed)
    below = [bound for bound in (0.0, *BOUNDS) if bound < times.p99_sec]
    assert not observed or sum(value <= below[-1] for value in observed) * 100 < 99 * len(observed)


def test_counters_of_topics_are_those_of_the_metrics() -> None:
    metrics = Metrics()
    for name, count in zip(("a", "b"), repeat(3), strict=False):
        metrics.topic(name).records_out += count
    sample = FigureReader(metrics, lambda: 1.0, lambda _: None)._sample()
    assert {name: counts.records_out for name, counts in sample.topics.items()} == {"a": 3, "b": 3}
