"""Numbers of KafscaleTopics, KafscaleUsers and KafscaleExports by phase."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafscale.operator.resource_status import Phase
from kafscale.ops.metric_families import Family, MetricType


def _resources_of(kind: str, word: str) -> Family:
    return Family(
        name=f"kafscale_{word}_resources",
        type=MetricType.GAUGE,
        labels=("namespace", "cluster", "phase"),
        documentation=f"Number of a cluster's {kind} in the phase: Pending, Ready, Failed, Deleting.",
    )


TOPIC_RESOURCES: Final = _resources_of("KafscaleTopics", "topic")
USER_RESOURCES: Final = _resources_of("KafscaleUsers", "user")
EXPORT_RESOURCES: Final = _resources_of("KafscaleExports", "export")
FAMILIES: Final = (TOPIC_RESOURCES, USER_RESOURCES, EXPORT_RESOURCES)


class ResourceMetrics(Collector):
    """Counts resources of one kind by phase. Written on the event loop; a scrape reads copies."""

    def __init__(self, registry: CollectorRegistry, family: Family) -> None:
        self._family = family
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
        known = list(self._phases.items())
        counts = Counter((namespace, cluster, phase) for (namespace, _), (cluster, phase) in known)
        gauge = GaugeMetricFamily(self._family.name, self._family.documentation, labels=self._family.labels)
        for namespace, cluster in sorted({(namespace, cluster) for namespace, cluster, _ in counts}):
            for phase in Phase:
                gauge.add_metric((namespace, cluster, phase.value), counts[namespace, cluster, phase])
        yield gauge
