"""The metrics in Prometheus' text form, written so that the broker keeps its pace meanwhile."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kafscale.ops.counted import LabelValues, Reading, readings
from kafscale.ops.histogram import Histogram
from kafscale.ops.metric_families import FAMILIES, Family
from kafscale.ops.metrics import Metrics

SAMPLES_PER_PAUSE = 50
PAUSE_SEC = 0.0001

MAX_LABEL_CHARACTERS: Final = 249
"""The longest label value: as long as a topic's name may be."""

_DIGEST_CHARACTERS: Final = 16

_FAMILIES_BY_NAME: Final = {family.name: family for family in FAMILIES}


def render(metrics: Metrics) -> bytes:
    """All families of `FAMILIES` and the process's own, as `text/plain; version=0.0.4`.

    For a thread other than the event loop's. A large cluster has many thousand samples, and Python runs one
    thread at a time: this thread rests after every few samples, so that the event loop waits for it no longer
    than those take.
    """
    registry = CollectorRegistry()
    registry.register(_Export(metrics))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _PacedSamples(list[Sample]):
    """Samples that let other threads run while they are written out."""

    def __iter__(self) -> Iterator[Sample]:
        for index, sample in enumerate(super().__iter__()):
            _pause(index)
            yield sample


class _Export(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """The families without samples: what the registry needs to see that no name comes twice."""
        return [_metric(family, []) for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """The families with their samples."""
        found: dict[str, list[Reading]] = {family.name: [] for family in FAMILIES}
        for index, reading in enumerate(_readings(self._metrics)):
            found[reading.family.name].append(reading)
            _pause(index)
        for family in FAMILIES:
            samples = _PacedSamples()
            for index, reading in enumerate(found.pop(family.name)):
                samples.extend(_samples(reading))
                _pause(index)
            yield _metric(family, samples)


def _pause(index: int) -> None:
    """Rest after every few."""
    if index % SAMPLES_PER_PAUSE == SAMPLES_PER_PAUSE - 1:
        time.sleep(PAUSE_SEC)


def _readings(metrics: Metrics) -> Iterator[Reading]:
    yield from readings(metrics)
    for name, gauges in list(metrics.readings.items()):
        for labels, read in list(gauges.items()):
            yield Reading(_FAMILIES_BY_NAME[name], labels, read())
    for name, read_series in list(metrics.series_readings.items()):
        for labels, value in read_series():
            yield Reading(_FAMILIES_BY_NAME[name], labels, value)


def _metric(family: Family, samples: list[Sample]) -> Metric:
    metric = Metric(family.name.removesuffix("_total"), family.documentation, family.type.value)
    metric.samples = samples
    return metric


def _samples(reading: Reading) -> Iterable[Sample]:
    labels = _labels(reading.family, reading.labels)
    if isinstance(reading.value, Histogram):
        return _histogram_samples(reading.family.name, labels, reading.value)
    return (Sample(reading.family.name, labels, reading.value),)


def _labels(family: Family, values: LabelValues) -> dict[str, str]:
    return dict(zip(family.labels, map(_bounded, values), strict=True))


def _bounded(value: str) -> str:
    """Clients choose names of groups of up to 32 KB; the digest keeps apart those that begin alike."""
    if len(value) <= MAX_LABEL_CHARACTERS:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{value[: MAX_LABEL_CHARACTERS - _DIGEST_CHARACTERS - 3]}...{digest}"


def _histogram_samples(name: str, labels: dict[str, str], histogram: Histogram) -> Iterator[Sample]:
    count = 0
    bounds = [f"{bound:.12g}" for bound in histogram.bounds] + ["+Inf"]
    for bound, observations in zip(bounds, tuple(histogram.counts), strict=True):
        count += observations
        yield Sample(f"{name}_bucket", {**labels, "le": bound}, count)
    yield Sample(f"{name}_count", labels, count)
    yield Sample(f"{name}_sum", labels, histogram.total)
