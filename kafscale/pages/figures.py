"""The figures of a page that any thread may read: counters, gauges, sizes, lag. Read at most once a second."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from kafscale.groups.lag import ConsumerLag
from kafscale.groups.share.lag import ShareLag, ShareLagRow
from kafscale.log.led_partitions import StoredTopic
from kafscale.ops.histogram import Histogram
from kafscale.ops.metric_family import Family
from kafscale.ops.metrics import Metrics
from kafscale.pages.collector import ServingBroker
from kafscale.pages.rates import Rates, RateWindow, Sample, TopicCounts

FRESH_SEC: Final = 1.0


class LagRow(NamedTuple):
    """A partition of a group. `log_end_offset`: None while it is not known; of one led elsewhere it may be old.

    `shared`: of a share group, whose `committed_offset` is its start offset, -1 before the first fetch.
    """

    group_id: str
    topic: str
    partition: int
    committed_offset: int
    log_end_offset: int | None
    shared: ShareLagRow | None = None

    @property
    def lag(self) -> int | None:
        """The records from the committed offset on; None if the log's end is not known, or from before the commit."""
        if self.shared is not None:
            return self.shared.lag
        if self.log_end_offset is None or self.log_end_offset < self.committed_offset:
            return None
        return self.log_end_offset - self.committed_offset


class LagTotal(NamedTuple):
    """The sum over partitions; `unknown` is the number of those whose lag is not known."""

    lag: int
    partitions: int
    unknown: int


@dataclass(frozen=True)
class LagTable:
    """The lag that is followed. `omitted`: partitions of groups beyond the limit, counted up to that."""

    rows: tuple[LagRow, ...]
    omitted: int

    @cached_property
    def by_group(self) -> Mapping[str, LagTotal]:
        """The totals of groups."""
        return lag_totals((row.group_id, row) for row in self.rows)

    @cached_property
    def total(self) -> LagTotal:
        """That of all groups."""
        return lag_totals(("", row) for row in self.rows).get("", LagTotal(0, 0, 0))

    @cached_property
    def by_topic(self) -> Mapping[str, LagTotal]:
        """The totals of topics, over all groups."""
        return lag_totals((row.topic, row) for row in self.rows)


def lag_totals(rows: Iterable[tuple[str, LagRow]]) -> dict[str, LagTotal]:
    """The totals by key."""
    found: dict[str, LagTotal] = {}
    for key, row in rows:
        lag, partitions, unknown = found.get(key, (0, 0, 0))
        found[key] = LagTotal(lag + (row.lag or 0), partitions + 1, unknown + (row.lag is None))
    return found


@dataclass(frozen=True, slots=True)
class Times:
    """Observations of a histogram. `p99_sec`: the bound below which 99 of 100 are, infinite above the last one."""

    count: int
    total_sec: float
    p99_sec: float

    @property
    def mean_sec(self) -> float:
        """The mean; 0 without observations."""
        return self.total_sec / self.count if self.count else 0.0


def times_of(histogram: Histogram) -> Times:
    """Those that are counted by now."""
    counts = tuple(histogram.counts)
    count, seen, p99_sec = sum(counts), 0, 0.0
    for bound, observations in zip((*histogram.bounds, float("inf")), counts, strict=True):
        seen += observations
        if seen * 100 >= count * 99:
            p99_sec = bound if count else 0.0
            break
    return Times(count, histogram.total, p99_sec)


class Gauges:
    """The gauges of the metrics, read one by one."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def get(self, family: Family, *labels: str) -> float | None:
        """The present value; None if this broker has no such gauge."""
        read = self._metrics.readings.get(family.name, {}).get(labels)
        return None if read is None else float(read())

    def all(self, family: Family) -> dict[tuple[str, ...], float]:
        """The present values by labels."""
        return {
            labels: float(read())
            for labels, read in list(self._metrics.readings.get(family.name, {}).items())
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All of them at one time. `totals`: counters since the start. `lag`: None if it is switched off.

    `topics`, `group_ids`: names in order.
    """

    rates: Rates
    totals: Sample
    stored: Mapping[str, StoredTopic]
    lag: LagTable | None
    topics: tuple[str, ...]
    group_ids: tuple[str, ...]


class FigureReader:
    """Reads the figures of one broker, and keeps them for a moment. For many threads."""

    def __init__(
        self, metrics: Metrics, now_sec: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        self._metrics = metrics
        self._now_sec = now_sec
        self._window = RateWindow(self._sample, sleep)
        self._lock = threading.Lock()
        self._kept: tuple[float, Figures] | None = None

    def read(self, broker: ServingBroker) -> Figures:
        """The figures of `FRESH_SEC` ago or later. Blocks a second where none were read lately."""
        with self._lock:
            if self._kept is None or self._now_sec() - self._kept[0] >= FRESH_SEC:
                figures = self._read(broker)
                self._kept = (self._now_sec(), figures)
            return self._kept[1]

    def _read(self, broker: ServingBroker) -> Figures:
        rates = self._window.measure()
        return Figures(
            rates=rates,
            totals=self._sample(),
            stored=broker.logs.stored_by_topic(),
            lag=None if broker.groups.lag is None else _lag_table(broker.groups.lag, broker.groups.share_lag),
            topics=tuple(sorted(broker.view.topic_names())),
            group_ids=tuple(sorted(broker.groups.coordinator.group_ids())),
        )

    def _sample(self) -> Sample:
        metrics = self._metrics
        costs, requests = list(metrics.topic_costs.items()), list(metrics.store_requests.items())
        return Sample(
            at_sec=self._now_sec(),
            topics={
                name: TopicCounts(one.bytes_in, one.records_in, one.bytes_out, one.records_out)
                for name, one in list(metrics.topics.items())
            },
            requests={name: one.count for name, one in requests},
            dollars={name: one.dollars for name, one in requests},
            topic_dollars={name: one.put + one.get for name, one in costs},
            apis={name: sum(one.duration.counts) for name, one in list(metrics.apis.items())},
            flushes=sum(metrics.flushes.outcomes.copy().values()),
        )


def _lag_table(lag: ConsumerLag, share_lag: ShareLag | None) -> LagTable:
    rows = [LagRow(*series, committed, end) for series, committed, end in lag.positions()]
    if share_lag is None:
        return LagTable(tuple(rows), lag.omitted_count)
    rows += (
        LagRow(one.group_id, one.topic, one.partition, one.start_offset, one.log_end_offset, one)
        for one in share_lag.rows
    )
    return LagTable(tuple(rows), lag.omitted_count + share_lag.omitted_count)
