"""Metrics of managed etcds."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafscale.operator.etcd.seen import CORRUPT, NO_SPACE, EtcdSeen
from kafscale.ops.metric_families import Family, MetricType

_CLUSTER: Final = ("namespace", "cluster")
_MEMBER: Final = (*_CLUSTER, "member")

MEMBER_UP: Final = Family(
    name="kafscale_etcd_member_up",
    type=MetricType.GAUGE,
    labels=_MEMBER,
    documentation="1 if a member of a managed etcd answered at the operator's last look, otherwise 0.",
)
HAS_MAJORITY: Final = Family(
    name="kafscale_etcd_has_majority",
    type=MetricType.GAUGE,
    labels=_CLUSTER,
    documentation="1 if a managed etcd accepted requests at the operator's last look, otherwise 0.",
)
SIZE: Final = Family(
    name="kafscale_etcd_size_bytes",
    type=MetricType.GAUGE,
    labels=_MEMBER,
    documentation="Size of a member's file, which counts against the quota.",
)
IN_USE: Final = Family(
    name="kafscale_etcd_in_use_bytes",
    type=MetricType.GAUGE,
    labels=_MEMBER,
    documentation="Bytes of the file that are in use; defragmentation frees the rest.",
)
QUOTA: Final = Family(
    name="kafscale_etcd_quota_bytes",
    type=MetricType.GAUGE,
    labels=_CLUSTER,
    documentation="The quota: a larger file of any member stops all writes.",
)
ALARM: Final = Family(
    name="kafscale_etcd_alarm",
    type=MetricType.GAUGE,
    labels=(*_CLUSTER, "alarm"),
    documentation="1 while a member of a managed etcd raises the alarm (NOSPACE, CORRUPT), otherwise 0.",
)
DEFRAGMENTATIONS: Final = Family(
    name="kafscale_etcd_defragmentations_total",
    type=MetricType.COUNTER,
    labels=(*_CLUSTER, "outcome"),
    documentation="Defragmentations of members: succeeded, or in doubt without an answer.",
)
FAMILIES: Final = (MEMBER_UP, HAS_MAJORITY, SIZE, IN_USE, QUOTA, ALARM, DEFRAGMENTATIONS)


@dataclass(slots=True, kw_only=True)
class EtcdNumbers:
    """One managed etcd: the newest look, and counts since the process started."""

    seen: EtcdSeen
    quota_bytes: int
    defragmentations: Counter[str] = field(default_factory=Counter)


class EtcdMetrics(Collector):
    """Metrics by namespace and cluster. Written on the event loop; a scrape reads copies."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._numbers: dict[tuple[str, str], EtcdNumbers] = {}
        registry.register(self)

    def looked(self, namespace: str, cluster: str, seen: EtcdSeen, quota_bytes: int) -> None:
        """Stores the newest look."""
        found = self._numbers.get((namespace, cluster))
        if found is None:
            self._numbers[namespace, cluster] = EtcdNumbers(seen=seen, quota_bytes=quota_bytes)
        else:
            found.seen, found.quota_bytes = seen, quota_bytes

    def defragmented(self, namespace: str, cluster: str, outcome: str) -> None:
        """Counts a defragmentation; `looked` must have been called for the cluster."""
        self._numbers[namespace, cluster].defragmentations[outcome] += 1

    def forget(self, namespace: str, cluster: str) -> None:
        """Drops a cluster that is deleted or has no managed etcd."""
        self._numbers.pop((namespace, cluster), None)

    def collect(self) -> Iterator[Metric]:
        """Implements `Collector`."""
        gauges = {
            family.name: GaugeMetricFamily(family.name, family.documentation, labels=family.labels)
            for family in FAMILIES
            if family.type is MetricType.GAUGE
        }
        counter = CounterMetricFamily(
            DEFRAGMENTATIONS.name, DEFRAGMENTATIONS.documentation, labels=DEFRAGMENTATIONS.labels
        )
        for cluster, numbers in sorted(self._numbers.items()):
            seen = numbers.seen
            gauges[HAS_MAJORITY.name].add_metric(cluster, float(seen.has_majority))
            gauges[QUOTA.name].add_metric(cluster, numbers.quota_bytes)
            raised = {each.kind for each in seen.alarms or ()}
            for kind in (NO_SPACE, CORRUPT):
                gauges[ALARM.name].add_metric((*cluster, kind), float(kind in raised))
            for member in seen.members:
                labels = (*cluster, member.name)
                gauges[MEMBER_UP.name].add_metric(labels, float(member.status is not None))
                if member.status is not None:
                    gauges[SIZE.name].add_metric(labels, member.status.size_bytes)
                    gauges[IN_USE.name].add_metric(labels, member.status.in_use_bytes)
            for outcome in ("succeeded", "in_doubt"):
                counter.add_metric((*cluster, outcome), numbers.defragmentations[outcome])
        yield from gauges.values()
        yield counter
