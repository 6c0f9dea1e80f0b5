"""Topics: which events make the operator look at one."""

import time
from typing import Any

import kopf

from kafscale.operator import api_names
from kafscale.operator.kube.kinds import CLUSTER, TOPIC
from kafscale.operator.reconciling import Operator, reconciled
from kafscale.operator.stores.cluster_connections import ClusterConnections
from kafscale.operator.stores.metadata_access import secret_reader
from kafscale.operator.topics.metrics import TopicMetrics
from kafscale.operator.topics.reconciler import TopicReconciler


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """A pass over a topic when it, its cluster or the topic itself changes, and by the clock."""
    connections = ClusterConnections(
        secret_reader(operator.kube), time.monotonic, operator.kube.check_may_write
    )
    reconciler = TopicReconciler(
        operator.kube,
        connections,
        lambda namespace, name: operator.wakers.wake(TOPIC, namespace, name),
        TopicMetrics(operator.metrics),
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
        """Status changes are many and of no interest here."""
        uid, namespace, name = (str(meta[part]) for part in ("uid", "namespace", "name"))
        if event["type"] == "DELETED":
            generations.pop(uid, None)
            await connections.forget(namespace, name)
        elif generations.get(uid) == meta["generation"]:
            return
        else:
            generations[uid] = meta["generation"]
        reconciler.changed(namespace, name, None)

    @kopf.on.cleanup(id="topic-connections", registry=registry)
    async def close(**_: Any) -> None:
        await connections.close()
