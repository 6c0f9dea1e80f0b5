"""kopf handlers that start passes over exports."""

import kopf

from kafscale.operator.exports.metrics import ExportLags
from kafscale.operator.exports.reconciler import ExportReconciler
from kafscale.operator.kube.kinds import EXPORT
from kafscale.operator.reconciling import Operator, reconciled
from kafscale.operator.resource_metrics import EXPORT_RESOURCES, ResourceMetrics


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Registers passes over an export: when its resource or its cluster changes, and periodically."""
    reconciler = ExportReconciler(
        operator.kube,
        operator.connections,
        lambda namespace, name: operator.wakers.wake(EXPORT, namespace, name),
        ResourceMetrics(operator.metrics, EXPORT_RESOURCES),
        ExportLags(operator.metrics),
    )

    def changed(namespace: str, cluster: str, topic: str | None) -> None:
        if topic is None:
            reconciler.changed(namespace, cluster)

    operator.connections.listen(changed)
    reconciled(
        registry,
        operator,
        EXPORT,
        "export",
        reconciler.reconcile,
        finish=reconciler.finish,
        forget=reconciler.forget,
    )
