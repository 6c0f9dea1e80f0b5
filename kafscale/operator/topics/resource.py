"""A KafscaleTopic in the Kubernetes API, and its cluster."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Protocol

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.errors import KubeError, SpecError
from kafscale.operator.kube.kinds import CLUSTER, TOPIC
from kafscale.operator.kube.roles import Finds, Lists, RecordsEvents
from kafscale.operator.stores.cluster_connection import LiveCluster, NotReadyError
from kafscale.operator.topics import owner as topic_owner
from kafscale.operator.topics import status as topic_status
from kafscale.operator.topics.status import Known, Reason, Verdict

_logger = logging.getLogger(__name__)

Manifest = dict[str, Any]


class TopicApi(Finds, Lists, RecordsEvents, Protocol):
    """The part of `KubeClient` that is needed here."""

    async def request(self, method: str, path: str, *, body: Mapping[str, Any] | None = None) -> Manifest:
        """Any call by its path."""


class Clusters(Protocol):
    """The part of `ClusterConnections` that is needed here."""

    def live(self, cluster: ClusterSpec) -> AbstractAsyncContextManager[LiveCluster]:
        """The cluster's connection, for the block. Raises `NotReadyError`."""


@asynccontextmanager
async def live_cluster(api: TopicApi, clusters: Clusters, resource: Manifest) -> AsyncIterator[LiveCluster]:
    """The topic's cluster, for the block. Raises `NotReadyError`, `SecretError`, `KubeError`."""
    namespace, name = resource["metadata"]["namespace"], topic_owner.cluster_name(resource)
    found = await api.find(CLUSTER, namespace, name)
    if found is None:
        raise NotReadyError(
            Reason.CLUSTER_NOT_FOUND, f"there is no KafscaleCluster {name} in namespace {namespace}"
        )
    if "deletionTimestamp" in found["metadata"]:
        raise NotReadyError(Reason.CLUSTER_BEING_DELETED, f"the KafscaleCluster {name} is being deleted")
    try:
        cluster = cluster_spec(name, namespace, found["spec"])
    except SpecError as problem:
        raise NotReadyError(Reason.CLUSTER_INVALID, f"the KafscaleCluster {name}: {problem}") from problem
    async with clusters.live(cluster) as live:
        yield live


def has_finalizer(resource: Manifest) -> bool:
    """True if the topic may be created: the resource is not being deleted, and cannot be without `finish`."""
    metadata = resource["metadata"]
    return "deletionTimestamp" not in metadata and api_names.FINALIZER in metadata.get("finalizers", ())


def new_status(resource: Manifest, verdict: Verdict, known: Known, now: datetime) -> Manifest:
    generation, before = resource["metadata"]["generation"], resource.get("status", {})
    return topic_status.status(verdict, known, before, generation, now)


async def put_status(api: TopicApi, resource: Manifest, status: Manifest) -> Manifest:
    """Writes the status; returns the resource. Raises `KubeRefusedError` (Conflict) if it changed since the read."""
    metadata = resource["metadata"]
    path = TOPIC.path(metadata["namespace"], metadata["name"], "status")
    return await api.request("PUT", path, body={**resource, "status": status})


async def record_event(
    api: TopicApi, resource: Manifest, reason: str, message: str, *, warning: bool
) -> None:
    """Records an event, best-effort; a failure is only logged."""
    try:
        await api.event(resource, reason, message, warning=warning)
    except KubeError as problem:
        _logger.warning("an event was lost: %s", problem)
