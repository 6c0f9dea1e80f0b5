"""The metrics in Prometheus' text form, written so that the broker keeps its pace meanwhile."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kafscale.ops import metric_families as families
from kafscale.ops.histogram import Histogram
from kafscale.ops.metric_families import FAMILIES, Family
from kafscale.ops.metrics import Metrics, OperationMetrics
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode

SAMPLES_PER_PAUSE = 50
PAUSE_SEC = 0.0001

MAX_LABEL_CHARACTERS: Final = 249
"""The longest label value: as long as a topic's name may be."""

_DIGEST_CHARACTERS: Final = 16

LabelValues = tuple[str, ...]
Values = Iterable[tuple[LabelValues, float]]


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
            if index % SAMPLES_PER_PAUSE == SAMPLES_PER_PAUSE - 1:
                time.sleep(PAUSE_SEC)
            yield sample


class _Export(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """The families without samples: what the registry needs to see that no name comes twice."""
        return [_metric(family, []) for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """The families with their samples."""
        metrics = self._metrics
        plain = _plain_values(metrics)
        histograms = _histograms(metrics)
        for family in FAMILIES:
            if family.name in histograms:
                samples = _histogram_samples(family, histograms[family.name])
            else:
                samples = _samples(family, plain.get(family.name, ()))
            yield _metric(family, samples)


def _plain_values(metrics: Metrics) -> Mapping[str, Values]:
    """The counters and gauges. The event loop adds to dictionaries: each is copied before it is walked."""
    values: dict[str, Values] = {
        families.BROKER_INFO.name: [((str(metrics.broker_id), metrics.version), 1)],
        families.FLUSHES.name: _by_label(metrics.flushes.outcomes),
        families.OBJECT_STORE_PROBES.name: _by_label(metrics.object_store_probes),
        families.LEADERSHIP_CHANGES.name: _by_label(metrics.leadership_changes),
        families.MERGES.name: [((outcome,), count) for outcome, count in metrics.merges.outcomes.items()],
        families.MERGED_SEGMENTS.name: [((), metrics.merges.sources)],
        families.MERGED_BYTES.name: [((), metrics.merges.bytes)],
        families.DECOMPRESSED_BATCHES.name: [((), metrics.decompression.batches)],
        families.DECOMPRESSED_BYTES.name: [((), metrics.decompression.bytes)],
        families.GARBAGE_REMOVED.name: [((), metrics.garbage_removed)],
        families.SEGMENTS_EXPIRED.name: _by_label(metrics.segments_expired),
        families.BYTES_EXPIRED.name: _by_label(metrics.bytes_expired),
        families.SEGMENTS_LOST.name: _by_label(metrics.segments_lost),
        families.LEASES_ENDED.name: [((), metrics.leases_ended)],
        families.BACKGROUND_FAILURES.name: _by_label(metrics.background_failures),
        families.INDEX_REBUILDS.name: [((), metrics.index_rebuilds)],
        families.OFFSET_COMMITS.name: [((), metrics.groups.commits)],
        families.CONNECTIONS.name: [((), metrics.connections.current)],
        families.CONNECTIONS_ACCEPTED.name: [((), metrics.connections.accepted)],
        families.CONNECTIONS_REJECTED.name: [((), metrics.connections.rejected)],
        families.FRAMES_REFUSED.name: _by_label(metrics.frames_refused),
        families.REQUEST_ERRORS.name: _request_errors(metrics),
        families.OBJECT_STORE_BYTES.name: [
            ((name,), operation.bytes) for name, operation in list(metrics.object_store_operations.items())
        ],
        families.OBJECT_STORE_ERRORS.name: _operation_errors(metrics.object_store_operations),
        families.METADATA_STORE_ERRORS.name: _operation_errors(metrics.metadata_store_operations),
    }
    values |= _topic_values(metrics)
    values |= _segment_store_values(metrics)
    caches = list(metrics.caches.items())
    values[families.CACHE_HITS.name] = [((name,), cache.hits) for name, cache in caches]
    values[families.CACHE_MISSES.name] = [((name,), cache.misses) for name, cache in caches]
    values[families.CACHE_EVICTIONS.name] = [((name,), cache.evictions) for name, cache in caches]
    for name, readings in list(metrics.readings.items()):
        values[name] = [(labels, read()) for labels, read in list(readings.items())]
    for name, read_series in list(metrics.series_readings.items()):
        values[name] = read_series()
    return values


def _topic_values(metrics: Metrics) -> dict[str, Values]:
    topics = list(metrics.topics.items())
    return {
        families.TOPIC_BYTES_IN.name: (((name,), topic.bytes_in) for name, topic in topics),
        families.TOPIC_RECORDS_IN.name: (((name,), topic.records_in) for name, topic in topics),
        families.TOPIC_BATCHES_IN.name: (((name,), topic.batches_in) for name, topic in topics),
        families.TOPIC_BYTES_OUT.name: (((name,), topic.bytes_out) for name, topic in topics),
        families.TOPIC_RECORDS_OUT.name: (((name,), topic.records_out) for name, topic in topics),
    }


def _segment_store_values(metrics: Metrics) -> dict[str, Values]:
    stores = list(metrics.segment_stores.items())
    return {
        families.SEGMENT_READS.name: [((name,), store.reads) for name, store in stores],
        families.SEGMENT_READ_BYTES.name: [((name,), store.bytes) for name, store in stores],
        families.SEGMENT_READ_MISSES.name: [((name,), store.misses) for name, store in stores],
        families.SEGMENT_READS_PASSED_OVER.name: [((name,), store.passed_over) for name, store in stores],
        families.SEGMENT_READ_ERRORS.name: [
            ((name, error), count) for name, store in stores for error, count in list(store.errors.items())
        ],
    }


def _by_label(counts: Mapping[str, int]) -> Values:
    return [((label,), count) for label, count in list(counts.items())]


def _request_errors(metrics: Metrics) -> Values:
    return [
        ((name, _error_name(code)), count)
        for name, api in list(metrics.apis.items())
        for code, count in list(api.errors.items())
    ]


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _operation_errors(operations: Mapping[str, OperationMetrics]) -> Values:
    return [
        ((name, error), count)
        for name, operation in list(operations.items())
        for error, count in list(operation.errors.items())
    ]


def _histograms(metrics: Metrics) -> dict[str, list[tuple[LabelValues, Histogram]]]:
    return {
        families.REQUEST_DURATION.name: [((name,), api.duration) for name, api in list(metrics.apis.items())],
        families.REQUEST_STAGE.name: _stages(metrics),
        families.REQUEST_ACTIVE.name: [((ApiKey.FETCH.name,), metrics.fetch_stages.active)],
        families.FLUSH_BYTES.name: [((), metrics.flushes.size)],
        families.FLUSH_DURATION.name: [((), metrics.flushes.duration)],
        families.GROUP_REBALANCE_DURATION.name: [((), metrics.groups.rebalance_duration)],
        families.OFFSET_COMMIT_DURATION.name: [((), metrics.groups.commit_duration)],
        families.OBJECT_STORE_DURATION.name: [
            ((name,), operation.duration) for name, operation in list(metrics.object_store_operations.items())
        ],
        families.METADATA_STORE_DURATION.name: [
            ((name,), operation.duration)
            for name, operation in list(metrics.metadata_store_operations.items())
        ],
    }


def _stages(metrics: Metrics) -> list[tuple[LabelValues, Histogram]]:
    apis = ((ApiKey.FETCH, metrics.fetch_stages), (ApiKey.PRODUCE, metrics.produce_stages))
    return [((api.name, stage), histogram) for api, stages in apis for stage, histogram in stages]


def _metric(family: Family, samples: list[Sample]) -> Metric:
    metric = Metric(family.name.removesuffix("_total"), family.documentation, family.type.value)
    metric.samples = samples
    return metric


def _samples(family: Family, values: Values) -> _PacedSamples:
    samples = _PacedSamples()
    for labels, value in values:
        samples.append(Sample(family.name, _labels(family, labels), value))
        if len(samples) % SAMPLES_PER_PAUSE == 0:
            time.sleep(PAUSE_SEC)
    return samples


def _labels(family: Family, values: LabelValues) -> dict[str, str]:
    return dict(zip(family.labels, map(_bounded, values), strict=True))


def _bounded(value: str) -> str:
    """Clients choose names of groups of up to 32 KB; the digest tells apart what begins alike."""
    if len(value) <= MAX_LABEL_CHARACTERS:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{value[: MAX_LABEL_CHARACTERS - _DIGEST_CHARACTERS - 3]}...{digest}"


def _histogram_samples(family: Family, histograms: Sequence[tuple[LabelValues, Histogram]]) -> _PacedSamples:
    samples = _PacedSamples()
    for values, histogram in histograms:
        labels = _labels(family, values)
        count = 0
        bounds = [f"{bound:.12g}" for bound in histogram.bounds] + ["+Inf"]
        for bound, observations in zip(bounds, tuple(histogram.counts), strict=True):
            count += observations
            samples.append(Sample(f"{family.name}_bucket", {**labels, "le": bound}, count))
        samples.append(Sample(f"{family.name}_count", labels, count))
        samples.append(Sample(f"{family.name}_sum", labels, histogram.total))
    return samples
