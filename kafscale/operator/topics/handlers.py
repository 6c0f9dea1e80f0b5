"""kopf handlers that start passes over topics."""

from typing import Any

import kopf

from kafscale.operator import api_names
from kafscale.operator.kube.kinds import CLUSTER, TOPIC
from kafscale.operator.reconciling import Operator, reconciled
from kafscale.operator.resource_metrics import TOPIC_RESOURCES, ResourceMetrics
from kafscale.operator.topics.reconciler import TopicReconciler


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Registers passes over a topic: when its resource, its cluster or the topic changes, and periodically."""
    connections = operator.connections
    reconciler = TopicReconciler(
        operator.kube,
        connections,
        lambda namespace, name: operator.wakers.wake(TOPIC, namespace, name),
        ResourceMetrics(operator.metrics, TOPIC_RESOURCES),
    )
    connections.listen(reconciler.changed)
    reconciled(
        registry,
        operator,
        TOPIC,
        "topic",
        reconciler.reconcile,
        finish=reconciler.finish,
        forget=reconciler.forget,
    )
    generations: dict[str, int] = {}

    @kopf.on.event(group=api_names.GROUP, plural=CLUSTER.plural, id="topics-of-cluster", registry=registry)
    async def cluster_seen(event: kopf.RawEvent, meta: kopf.Meta, **_: Any) -> None:
        """Ignores status changes, which are frequent."""
        uid, namespace, name = (str(meta[part]) for part in ("uid", "namespace", "name"))
        if event["type"] == "DELETED":
            generations.pop(uid, None)
            await connections.forget(namespace, name)
        elif generations.get(uid) == meta["generation"]:
            return
        else:
            generations[uid] = meta["generation"]
        connections.notify(namespace, name)  # users, too

    @kopf.on.cleanup(id="topic-connections", registry=registry)
    async def close(**_: Any) -> None:
        await connections.close()
