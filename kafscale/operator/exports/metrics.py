"""The lag of KafscaleExports' topics, also while no exporter runs."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafscale.operator.exports.progress import TopicProgress
from kafscale.operator.exports.spec import ExportSpec
from kafscale.ops.metric_families import Family, MetricType

MOST_TOPICS: Final = 100
"""Of each export, those with the largest lag."""

_LABELS: Final = ("namespace", "cluster", "export", "topic")

LAG: Final = Family(
    name="kafscale_export_resource_lag",
    type=MetricType.GAUGE,
    labels=_LABELS,
    documentation="Offsets that the table of a topic of a KafscaleExport lacks, also while no exporter runs; of the "
    "100 topics with the most.",
)
LAG_SECONDS: Final = Family(
    name="kafscale_export_resource_lag_seconds",
    type=MetricType.GAUGE,
    labels=_LABELS,
    documentation="Time since the table had everything that was published until then; 0 while nothing is known that "
    "it lacks; absent until it had everything once.",
)
DEAD_LETTERS: Final = Family(
    name="kafscale_export_resource_dead_letters",
    type=MetricType.GAUGE,
    labels=_LABELS,
    documentation="Values and keys of the topic that did not decode so far.",
)
FAMILIES: Final = (LAG, LAG_SECONDS, DEAD_LETTERS)


class ExportLags(Collector):
    """Written on the event loop; a scrape reads copies."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._samples: dict[tuple[str, str], list[tuple[Family, tuple[str, ...], float]]] = {}
        registry.register(self)

    def show(self, export: ExportSpec, topics: Sequence[TopicProgress], now_sec: float) -> None:
        """Replaces the export's samples."""
        samples: list[tuple[Family, tuple[str, ...], float]] = []
        for one in sorted(topics, key=lambda one: (-one.lag, one.topic))[:MOST_TOPICS]:
            labels = (export.namespace, export.cluster, export.name, one.topic)
            lag_sec = one.lag_sec(now_sec)
            if one.progress is not None:
                samples.append((LAG, labels, one.lag))
                samples.append((DEAD_LETTERS, labels, one.progress.dead_letters))
            if lag_sec is not None:
                samples.append((LAG_SECONDS, labels, lag_sec))
        self._samples[export.namespace, export.name] = samples

    def forget(self, namespace: str, name: str) -> None:
        """Drops an export, if known."""
        self._samples.pop((namespace, name), None)

    def collect(self) -> Iterator[Metric]:
        """Implements `Collector`."""
        known = [sample for samples in list(self._samples.values()) for sample in samples]
        for family in FAMILIES:
            gauge = GaugeMetricFamily(family.name, family.documentation, labels=family.labels)
            for of, labels, value in known:
                if of is family:
                    gauge.add_metric(labels, value)
            yield gauge
