"""kopf handlers that start passes over clusters."""

import kopf

from kafscale.operator.clusters.reconciler import ClusterReconciler
from kafscale.operator.clusters.status import healths
from kafscale.operator.kube import kinds as kube_kinds
from kafscale.operator.reconciling import Operator, reconciled, requested_state, watched


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Registers passes over a cluster: when it or one of its objects changes, and periodically."""
    reconciler = ClusterReconciler(operator)
    reconciled(
        registry,
        operator,
        kube_kinds.CLUSTER,
        "cluster",
        reconciler.reconcile,
        finish=reconciler.finish,
        forget=operator.own_metrics.forget_cluster,
        relevant=lambda resource: (requested_state(resource), healths(resource)),
    )
    for owned in (kube_kinds.STATEFUL_SET, kube_kinds.AUTOSCALER, kube_kinds.DISRUPTION_BUDGET):
        watched(registry, operator, owned)
