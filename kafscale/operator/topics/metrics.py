"""Metrics of KafscaleTopics."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafscale.operator.topics.status import Phase
from kafscale.ops.metric_families import Family, MetricType

RESOURCES: Final = Family(
    name="kafscale_topic_resources",
    type=MetricType.GAUGE,
    labels=("namespace", "cluster", "phase"),
    documentation="Number of a cluster's KafscaleTopics in the phase: Pending, Ready, Failed, Deleting.",
)
FAMILIES: Final = (RESOURCES,)


class TopicMetrics(Collector):
    """Counts resources by phase. Written on the event loop; a scrape reads copies."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._phases: dict[tuple[str, str], tuple[str, Phase]] = {}
        registry.register(self)

    def show(self, namespace: str, name: str, cluster: str, phase: Phase) -> None:
        """Stores a resource's cluster and phase."""
        self._phases[namespace, name] = (cluster, phase)

    def forget(self, namespace: str, name: str) -> None:
        """Drops a resource, if known."""
        self._phases.pop((namespace, name), None)

    def collect(self) -> Iterator[Metric]:
        """Implements `Collector`. A cluster that any resource names has a series for each phase."""
        held = list(self._phases.items())
        counts = Counter((namespace, cluster, phase) for (namespace, _), (cluster, phase) in held)
        gauge = GaugeMetricFamily(RESOURCES.name, RESOURCES.documentation, labels=RESOURCES.labels)
        for namespace, cluster in sorted({(namespace, cluster) for namespace, cluster, _ in counts}):
            for phase in Phase:
                gauge.add_metric((namespace, cluster, phase.value), counts[namespace, cluster, phase])
        yield gauge
