"""Metrics of snapshots of the metadata store."""

import contextlib
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry

from kafscale.operator.operator_metrics import counter, gauge
from kafscale.ops.metric_families import Family, MetricType

_LABELS: Final = ("namespace", "cluster")

LAST_SUCCESS: Final = Family(
    name="kafscale_backup_last_success_timestamp_seconds",
    type=MetricType.GAUGE,
    labels=_LABELS,
    documentation="Unix time of the newest snapshot of the metadata store; 0 before the first.",
)
SIZE: Final = Family(
    name="kafscale_backup_size_bytes",
    type=MetricType.GAUGE,
    labels=_LABELS,
    documentation="Size of the newest snapshot.",
)
DURATION: Final = Family(
    name="kafscale_backup_duration_seconds",
    type=MetricType.GAUGE,
    labels=_LABELS,
    documentation="Duration of the last attempt at a snapshot, successful or not.",
)
ATTEMPTS: Final = Family(
    name="kafscale_backup_attempts_total",
    type=MetricType.COUNTER,
    labels=_LABELS,
    documentation="Attempts at a snapshot.",
)
FAILURES: Final = Family(
    name="kafscale_backup_failures_total",
    type=MetricType.COUNTER,
    labels=_LABELS,
    documentation="Attempts at a snapshot that failed.",
)
FAMILIES: Final = (LAST_SUCCESS, SIZE, DURATION, ATTEMPTS, FAILURES)


class BackupMetrics:
    """One series per cluster with backups."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._last_success = gauge(LAST_SUCCESS, registry)
        self._size = gauge(SIZE, registry)
        self._duration = gauge(DURATION, registry)
        self._attempts = counter(ATTEMPTS, registry)
        self._failures = counter(FAILURES, registry)

    def show(
        self, namespace: str, cluster: str, last_success: datetime | None, size_bytes: int | None
    ) -> None:
        """Exports the newest snapshot; counters start at 0."""
        labels = (namespace, cluster)
        self._last_success.labels(*labels).set(0 if last_success is None else last_success.timestamp())
        self._size.labels(*labels).set(size_bytes or 0)
        self._attempts.labels(*labels)
        self._failures.labels(*labels)

    def attempted(self, namespace: str, cluster: str, duration_sec: float, *, failed: bool) -> None:
        """Counts an attempt."""
        labels = (namespace, cluster)
        self._attempts.labels(*labels).inc()
        self._duration.labels(*labels).set(duration_sec)
        if failed:
            self._failures.labels(*labels).inc()

    def forget(self, namespace: str, cluster: str) -> None:
        """Removes the cluster's series, if any."""
        for family in (self._last_success, self._size, self._duration, self._attempts, self._failures):
            with contextlib.suppress(KeyError):
                family.remove(namespace, cluster)
