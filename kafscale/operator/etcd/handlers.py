"""kopf handlers that start passes over managed etcds."""

import uuid

import kopf

from kafscale.operator.etcd.metrics import EtcdMetrics
from kafscale.operator.etcd.reconciler import EtcdReconciler
from kafscale.operator.kube.kinds import CLUSTER
from kafscale.operator.reconciling import Operator, reconciled
from kafscale.operator.times import utc_now


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Registers passes: when the cluster or its StatefulSets change (watched by `clusters`), and periodically."""
    reconciler = EtcdReconciler(
        operator.kube,
        operator.etcd_image,
        EtcdMetrics(operator.metrics),
        utc_now,
        lambda: uuid.uuid4().hex,
        operator.kube.access.namespace,
    )
    reconciled(registry, operator, CLUSTER, "etcd", reconciler.reconcile, forget=reconciler.forget)
