"""The series that rules and dashboards may use: Kafscale's own by their tables, others by name."""

from collections.abc import Iterable
from typing import Final

from kafscale.lake import metric_families as of_exports
from kafscale.operator import metric_families as of_operator
from kafscale.ops import metric_families as of_brokers
from kafscale.ops.metric_families import Family, MetricType

TARGET_LABELS: Final = frozenset({"job", "namespace", "cluster", "component", "pod"})
"""Labels that a scrape adds: see the chart's monitors."""

ETCD: Final = (
    Family(name="etcd_server_has_leader", type=MetricType.GAUGE, documentation=""),
    Family(name="etcd_server_is_leader", type=MetricType.GAUGE, documentation=""),
    Family(name="etcd_server_leader_changes_seen_total", type=MetricType.COUNTER, documentation=""),
    Family(name="etcd_server_proposals_committed_total", type=MetricType.GAUGE, documentation=""),
    Family(name="etcd_server_proposals_failed_total", type=MetricType.COUNTER, documentation=""),
    Family(name="etcd_server_quota_backend_bytes", type=MetricType.GAUGE, documentation=""),
    Family(name="etcd_mvcc_db_total_size_in_bytes", type=MetricType.GAUGE, documentation=""),
    Family(name="etcd_mvcc_db_total_size_in_use_in_bytes", type=MetricType.GAUGE, documentation=""),
    Family(name="etcd_disk_wal_fsync_duration_seconds", type=MetricType.HISTOGRAM, documentation=""),
    Family(name="etcd_disk_backend_commit_duration_seconds", type=MetricType.HISTOGRAM, documentation=""),
)
"""etcd's own; a test asks a real etcd for each."""

PROCESS: Final = (
    Family(name="process_start_time_seconds", type=MetricType.GAUGE, documentation=""),
    Family(name="process_cpu_seconds_total", type=MetricType.COUNTER, documentation=""),
    Family(name="process_resident_memory_bytes", type=MetricType.GAUGE, documentation=""),
    Family(name="process_open_fds", type=MetricType.GAUGE, documentation=""),
    Family(name="process_max_fds", type=MetricType.GAUGE, documentation=""),
)
"""Of every Prometheus client; a test asks a broker's export for each."""

PROMETHEUS: Final = (Family(name="up", type=MetricType.GAUGE, documentation=""),)

OWN: Final = (*of_brokers.FAMILIES, *of_operator.FAMILIES, *of_exports.FAMILIES)


def series(families: Iterable[Family]) -> dict[str, tuple[MetricType, frozenset[str]]]:
    """Every series' name, with what it counts as and its own labels. A histogram's parts count up."""
    found: dict[str, tuple[MetricType, frozenset[str]]] = {}
    for family in families:
        labels = frozenset(family.labels)
        if family.type is not MetricType.HISTOGRAM:
            found[family.name] = family.type, labels
            continue
        found[f"{family.name}_bucket"] = MetricType.COUNTER, labels | {"le"}
        found[f"{family.name}_sum"] = MetricType.COUNTER, labels
        found[f"{family.name}_count"] = MetricType.COUNTER, labels
    return found


KNOWN: Final = series((*OWN, *ETCD, *PROCESS, *PROMETHEUS))
