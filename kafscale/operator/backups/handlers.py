"""kopf handlers that start passes over clusters' backups."""

import time

import kopf

from kafscale.operator.backups.metrics import BackupMetrics
from kafscale.operator.backups.reconciler import BackupReconciler
from kafscale.operator.backups.runner import BackupRunner
from kafscale.operator.kube.kinds import CLUSTER
from kafscale.operator.reconciling import Operator, reconciled
from kafscale.operator.stores.metadata_access import secret_reader
from kafscale.operator.times import utc_now


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Registers passes: when the cluster changes, and when the next snapshot is due."""
    runner = BackupRunner(
        secret_reader(operator.kube), lambda: time.time_ns() // 1_000_000, operator.own_role_buckets
    )
    metrics = BackupMetrics(operator.metrics)
    reconciler = BackupReconciler(operator.kube, runner.take, metrics, utc_now, time.monotonic)
    reconciled(registry, operator, CLUSTER, "backup", reconciler.reconcile, forget=reconciler.forget)
