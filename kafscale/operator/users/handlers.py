"""kopf handlers that start passes over users."""

import kopf

from kafscale.operator.kube.kinds import USER
from kafscale.operator.reconciling import Operator, reconciled
from kafscale.operator.resource_metrics import USER_RESOURCES, ResourceMetrics
from kafscale.operator.users.reconciler import UserReconciler


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Registers passes over a user: when its resource or its cluster changes, and periodically."""
    reconciler = UserReconciler(
        operator.kube,
        operator.connections,
        lambda namespace, name: operator.wakers.wake(USER, namespace, name),
        ResourceMetrics(operator.metrics, USER_RESOURCES),
    )

    def changed(namespace: str, cluster: str, topic: str | None) -> None:
        if topic is None:
            reconciler.changed(namespace, cluster)

    operator.connections.listen(changed)
    reconciled(
        registry,
        operator,
        USER,
        "user",
        reconciler.reconcile,
        finish=reconciler.finish,
        forget=reconciler.forget,
    )
