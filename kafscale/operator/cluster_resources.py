"""Parts that the resources of one cluster share, topics and users: their cluster, owner, verdict, status, events."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Final, Protocol

from kafscale.errors import CorruptDataError, StoreError
from kafscale.operator import api_names, conditions, resource_status
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.errors import KubeError, SpecError
from kafscale.operator.kube.kinds import CLUSTER, Kind
from kafscale.operator.kube.roles import Finds, Lists, RecordsEvents
from kafscale.operator.resource_status import Owned, Phase, Verdict
from kafscale.operator.stores.cluster_connection import CORRUPT, UNREACHABLE, LiveCluster, NotReadyError
from kafscale.operator.stores.metadata_access import SecretError
from kafscale.operator.stores.same_cluster_store import OtherClusterError

_logger = logging.getLogger(__name__)

Manifest = dict[str, Any]
Resource = Mapping[str, Any]

INVALID_SPEC: Final = "InvalidSpec"
SECRET_MISSING: Final = "SecretMissing"
CLUSTER_NOT_FOUND: Final = "ClusterNotFound"
CLUSTER_INVALID: Final = "ClusterInvalid"
CLUSTER_BEING_DELETED: Final = "ClusterBeingDeleted"


class ResourceApi(Finds, Lists, RecordsEvents, Protocol):
    """The part of `KubeClient` that is needed here."""

    async def request(self, method: str, path: str, *, body: Mapping[str, Any] | None = None) -> Manifest:
        """Any call by its path."""


class Clusters(Protocol):
    """The part of `ClusterConnections` that is needed here."""

    def live(self, cluster: ClusterSpec) -> AbstractAsyncContextManager[LiveCluster]:
        """The cluster's connection, for the block. Raises `NotReadyError`."""


def cluster_name(resource: Resource) -> str:
    """Name of the resource's KafscaleCluster."""
    return str(resource["spec"]["clusterRef"]["name"])


@asynccontextmanager
async def live_cluster(api: Finds, clusters: Clusters, resource: Resource) -> AsyncIterator[LiveCluster]:
    """The resource's cluster, for the block. Raises `NotReadyError`, `SecretError`, `KubeError`."""
    namespace, name = resource["metadata"]["namespace"], cluster_name(resource)
    found = await api.find(CLUSTER, namespace, name)
    if found is None:
        raise NotReadyError(CLUSTER_NOT_FOUND, f"there is no KafscaleCluster {name} in namespace {namespace}")
    if "deletionTimestamp" in found["metadata"]:
        raise NotReadyError(CLUSTER_BEING_DELETED, f"the KafscaleCluster {name} is being deleted")
    try:
        cluster = cluster_spec(name, namespace, found["spec"])
    except SpecError as problem:
        raise NotReadyError(CLUSTER_INVALID, f"the KafscaleCluster {name}: {problem}") from problem
    async with clusters.live(cluster) as live:
        yield live


def rivals(
    resource: Resource, resources: Iterable[Resource], target: Callable[[Resource], object]
) -> list[Resource]:
    """Other resources of the namespace with the same target that are not being deleted.

    `target`: of a resource, what it declares in Kafka, such as the topic's name.
    """
    return [
        each
        for each in resources
        if each["metadata"]["uid"] != resource["metadata"]["uid"]
        and "deletionTimestamp" not in each["metadata"]
        and (cluster_name(each), target(each)) == (cluster_name(resource), target(resource))
    ]


def owner(
    resource: Resource,
    resources: Iterable[Resource],
    target: Callable[[Resource], object],
    has_it: Callable[[Resource], bool],
) -> Resource:
    """The resource that owns the target: the one that already has it, else the oldest."""

    def rank(one: Resource) -> tuple[bool, str, str]:
        return (not has_it(one), one["metadata"]["creationTimestamp"], one["metadata"]["uid"])

    return min([resource, *rivals(resource, resources, target)], key=rank)


def has_finalizer(resource: Manifest) -> bool:
    """True if it may be carried out: the resource is not being deleted, and cannot be without `finish`."""
    metadata = resource["metadata"]
    return "deletionTimestamp" not in metadata and api_names.FINALIZER in metadata.get("finalizers", ())


async def verdict_of(work: Awaitable[Verdict]) -> Verdict:
    """The verdict of a pass's work; a problem that topics and users can both have becomes one, too.

    Raises every other problem, such as `KubeError`.
    """
    try:
        return await work
    except SpecError as problem:
        return Verdict(phase=Phase.FAILED, reason=INVALID_SPEC, message=str(problem))
    except NotReadyError as problem:
        return Verdict(phase=Phase.PENDING, reason=problem.reason, message=str(problem))
    except SecretError as problem:
        return Verdict(phase=Phase.PENDING, reason=SECRET_MISSING, message=str(problem))
    except (StoreError, OtherClusterError) as problem:
        return Verdict(phase=Phase.PENDING, reason=UNREACHABLE, message=str(problem))
    except CorruptDataError as problem:
        return Verdict(phase=Phase.FAILED, reason=CORRUPT, message=str(problem))


async def put_status(api: ResourceApi, kind: Kind, resource: Manifest, status: Manifest) -> Manifest:
    """Writes the status; returns the resource. Raises `KubeRefusedError` (Conflict) if it changed since the read."""
    metadata = resource["metadata"]
    path = kind.path(metadata["namespace"], metadata["name"], "status")
    return await api.request("PUT", path, body={**resource, "status": status})


async def write_verdict(
    api: ResourceApi, kind: Kind, resource: Manifest, verdict: Verdict, known: Owned, now: datetime
) -> None:
    """Writes the status if it changed, and records an event if the condition turned. Raises `KubeError`."""
    before, generation = resource.get("status", {}), resource["metadata"]["generation"]
    status = resource_status.status(verdict, known, before, generation, now)
    if status == before:
        return
    await put_status(api, kind, resource, status)
    for condition in conditions.changed(before.get("conditions", ()), [verdict.condition]):
        is_warning = verdict.phase is Phase.FAILED
        await record_event(api, resource, condition.reason, condition.message, warning=is_warning)


async def record_event(
    api: RecordsEvents, resource: Manifest, reason: str, message: str, *, warning: bool
) -> None:
    """Records an event, best-effort; a failure is only logged."""
    try:
        await api.event(resource, reason, message, warning=warning)
    except KubeError as problem:
        _logger.warning("an event was lost: %s", problem)
