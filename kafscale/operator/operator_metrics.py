"""Metrics of the operator's own work, and of clusters' readiness."""

import contextlib
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from kafscale.ops.metric_families import Family, MetricType

LEADING: Final = Family(
    name="kafscale_operator_leading",
    type=MetricType.GAUGE,
    documentation="1 for the leading operator, 0 for stand-bys.",
)
PASSES: Final = Family(
    name="kafscale_operator_passes_total",
    type=MetricType.COUNTER,
    labels=("part",),
    documentation="Passes over resources, by part of the operator.",
)
PASS_FAILURES: Final = Family(
    name="kafscale_operator_pass_failures_total",
    type=MetricType.COUNTER,
    labels=("part",),
    documentation="Failed passes, which are retried, by part of the operator.",
)
CLUSTER_READY: Final = Family(
    name="kafscale_cluster_ready",
    type=MetricType.GAUGE,
    labels=("namespace", "cluster"),
    documentation="1 while a cluster is Ready, or Stopped on purpose; 0 in every other phase.",
)
FAMILIES: Final = (LEADING, PASSES, PASS_FAILURES, CLUSTER_READY)


class OperatorMetrics:
    """A cluster's series exist while the operator leads and the cluster exists."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._leading = gauge(LEADING, registry)
        self._passes = counter(PASSES, registry)
        self._failures = counter(PASS_FAILURES, registry)
        self._ready = gauge(CLUSTER_READY, registry)

    def set_leading(self, leads: bool) -> None:
        self._leading.set(leads)

    def add_part(self, part: str) -> None:
        """Starts the part's counters at 0."""
        self._passes.labels(part)
        self._failures.labels(part)

    def passed(self, part: str, *, failed: bool = False) -> None:
        """Counts one pass of the part."""
        self._passes.labels(part).inc()
        if failed:
            self._failures.labels(part).inc()

    def show_cluster(self, namespace: str, cluster: str, *, ready: bool) -> None:
        self._ready.labels(namespace, cluster).set(ready)

    def forget_cluster(self, namespace: str, cluster: str) -> None:
        """Removes the cluster's series, if any."""
        with contextlib.suppress(KeyError):
            self._ready.remove(namespace, cluster)


def gauge(family: Family, registry: CollectorRegistry) -> Gauge:
    """Registers the family."""
    return Gauge(family.name, family.documentation, family.labels, registry=registry)


def counter(family: Family, registry: CollectorRegistry) -> Counter:
    """Registers the family, whose name ends in `_total`: the library appends that itself."""
    return Counter(family.name.removesuffix("_total"), family.documentation, family.labels, registry=registry)
