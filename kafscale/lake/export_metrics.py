"""Prometheus metrics of an export: listens to the job, and is a collector."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from kafscale.lake import metric_families as families
from kafscale.lake.events import BatchRanges, Offsets
from kafscale.lake.metric_families import FAMILIES
from kafscale.ops.metric_families import Family, MetricType

MOST_LAG_SERIES: Final = 1000
BOUNDS_SEC: Final = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)

Labels = tuple[tuple[str, str], ...]


class ExportMetrics(Collector):
    """Listens to an export (see `ExportEvents`), from any thread, and is a collector for a registry.

    `clock`: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float], most_lag_series: int = MOST_LAG_SERIES) -> None:
        self._clock = clock
        self._most_lag_series = most_lag_series
        self._samples: dict[str, dict[Labels, float]] = defaultdict(dict)
        self._positions: dict[tuple[str, int], int] = {}
        self._log_ends: dict[tuple[str, int], int] = {}
        self._first_looks: dict[str, float] = {}
        self._lock = threading.Lock()

    def topic_started(self, topic: str, table: str, start: Offsets, end: Offsets) -> None:
        """See `ExportEvents`. A topic's counters begin at 0, so that their first increase is seen."""
        with self._lock:
            for family in (families.ROWS, families.DEAD_LETTERS, families.GAPS, families.GAP_OFFSETS):
                self._add(family, topic, 0)
            self._add(families.FAILURES, topic, 0)
            self._set(families.BATCH_ROWS, topic, 0)
            self._first_looks.setdefault(topic, self._clock())
            for partition, offset in start.items():
                self._positions[topic, partition] = offset
            self._see_log_end(topic, end)

    def batch_started(self, topic: str, ranges: BatchRanges) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._set(families.BATCH_ROWS, topic, 0)

    def rows_read(self, topic: str, rows: int) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._set(families.BATCH_ROWS, topic, rows)

    def tasks_done(self, topic: str, done: int, tasks: int) -> None:
        """See `ExportEvents`: not counted, Spark has metrics of its own."""

    def batch_committed(
        self, topic: str, rows: int, dead_letters: int, positions: Offsets, log_end: Offsets, seconds: float
    ) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._add(families.ROWS, topic, rows)
            self._add(families.DEAD_LETTERS, topic, dead_letters)
            self._observe(families.COMMIT_DURATION, topic, seconds)
            self._set(families.LAST_COMMIT, topic, self._clock())
            self._set(families.BATCH_ROWS, topic, 0)
            for partition, offset in positions.items():
                self._positions[topic, partition] = offset
            self._see_log_end(topic, log_end)

    def gap_recorded(self, topic: str, partition: int, first: int, next_offset: int) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._add(families.GAPS, topic, 1)
            self._add(families.GAP_OFFSETS, topic, next_offset - first)

    def topic_finished(self, topic: str) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._set(families.LAST_SUCCESS, topic, self._clock())

    def topic_complete(self, topic: str, as_of_sec: float) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._set(families.COMPLETE, topic, as_of_sec)

    def topic_left(self, topic: str) -> None:
        """See `ExportEvents`: its series go, but for the counters."""
        with self._lock:
            self._first_looks.pop(topic, None)
            for known in (self._positions, self._log_ends):
                for key in [key for key in known if key[0] == topic]:
                    del known[key]
            for family in FAMILIES:
                if family.type is MetricType.GAUGE:
                    self._samples[family.name].pop(_labels(topic), None)

    def topic_failed(self, topic: str, error: BaseException | str) -> None:
        """See `ExportEvents`."""
        with self._lock:
            self._add(families.FAILURES, topic, 1)
            self._set(families.BATCH_ROWS, topic, 0)

    def go_on_from(self, text: str) -> None:
        """Take over the counters of an earlier run, so that they continue.

        Lags are not taken over: they are out of date. Raises `ValueError` for a text that is not the text format.
        """
        known = {family.name.removesuffix("_total"): family for family in FAMILIES}
        lags = {
            families.LAG.name,
            families.TOPIC_LAG.name,
            families.TOPIC_LAG_SECONDS.name,
            families.LAG_SERIES_OMITTED.name,
        }
        parsed = [
            (sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for metric in text_string_to_metric_families(text)
            if metric.name in known and metric.name not in lags
            for sample in metric.samples
        ]
        with self._lock:
            for name, labels, value in parsed:
                self._samples[name][labels] = value

    def describe(self) -> Iterable[Metric]:
        """The families without samples, by which a registry finds names that collide."""
        return [_metric(family) for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """The families with their samples."""
        with self._lock:
            self._measure_lags()
            return [self._with_samples(family) for family in FAMILIES]

    def _with_samples(self, family: Family) -> Metric:
        metric = _metric(family)
        for suffix in ("_bucket", "_count", "_sum") if family.type is MetricType.HISTOGRAM else ("",):
            name = family.name + suffix
            for labels, value in self._samples[name].items():
                metric.add_sample(name, dict(labels), value)
        return metric

    def _measure_lags(self) -> None:
        lags = {key: max(0, end - self._positions.get(key, 0)) for key, end in sorted(self._log_ends.items())}
        by_topic: dict[str, int] = defaultdict(int)
        for (topic, _), lag in lags.items():
            by_topic[topic] += lag
        shown = list(lags.items())[: self._most_lag_series]
        self._samples[families.TOPIC_LAG.name] = {_labels(topic): lag for topic, lag in by_topic.items()}
        self._samples[families.LAG.name] = {
            (("partition", str(partition)), ("topic", topic)): lag for (topic, partition), lag in shown
        }
        self._samples[families.LAG_SERIES_OMITTED.name] = {(): len(lags) - len(shown)}
        now, complete = self._clock(), self._samples[families.COMPLETE.name]
        self._samples[families.TOPIC_LAG_SECONDS.name] = {
            _labels(topic): max(0.0, now - complete.get(_labels(topic), first))
            for topic, first in self._first_looks.items()
        }

    def _see_log_end(self, topic: str, log_end: Offsets) -> None:
        for partition, offset in log_end.items():
            self._log_ends[topic, partition] = offset

    def _add(self, family: Family, topic: str, amount: float) -> None:
        samples, labels = self._samples[family.name], _labels(topic)
        samples[labels] = samples.get(labels, 0) + amount

    def _set(self, family: Family, topic: str, value: float) -> None:
        self._samples[family.name][_labels(topic)] = value

    def _observe(self, family: Family, topic: str, value: float) -> None:
        buckets = self._samples[f"{family.name}_bucket"]
        for bound in (*BOUNDS_SEC, float("inf")):
            shown = "+Inf" if bound == float("inf") else f"{bound:.12g}"
            labels: Labels = (("le", shown), ("topic", topic))
            buckets[labels] = buckets.get(labels, 0) + (value <= bound)
        for suffix, amount in (("_count", 1.0), ("_sum", value)):
            samples, own = self._samples[family.name + suffix], _labels(topic)
            samples[own] = samples.get(own, 0) + amount


def _labels(topic: str) -> Labels:
    return (("topic", topic),)


def _metric(family: Family) -> Metric:
    return Metric(family.name.removesuffix("_total"), family.documentation, family.type.value)
