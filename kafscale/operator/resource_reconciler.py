"""The frame of the reconcilers of topics and users: one pass at a time, wake-ups, retries, deletion.

Every resource of one kind names a cluster and a target in it, such as a topic. What a pass does, and what a deletion
does to the target, is the subclass's.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Final, Generic, TypeVar

from kafscale.operator import cluster_resources, resource_status
from kafscale.operator.cluster_resources import (
    Clusters,
    Manifest,
    ResourceApi,
    cluster_name,
    has_finalizer,
    record_event,
)
from kafscale.operator.errors import KubeRefusedError
from kafscale.operator.keyed_locks import KeyedLocks
from kafscale.operator.kube.kinds import CLUSTER, Kind
from kafscale.operator.resource_metrics import ResourceMetrics
from kafscale.operator.resource_status import Owned, Phase, Verdict
from kafscale.operator.times import utc_now

AGAIN_SEC: Final = 60.0
"""Interval of passes without a change: for what is not watched, such as Secrets."""

PENDING_AGAIN_SEC: Final = 10.0
CONFLICT_AGAIN_SEC: Final = 0.1

Api = TypeVar("Api", bound=ResourceApi)


class ResourceReconciler(ABC, Generic[Api]):
    """Reconciles every resource of `kind`. Its memory only serves wake-ups and keeps passes apart.

    `wake`: called with the namespace and name of a resource that needs a pass.
    """

    kind: Kind

    def __init__(
        self,
        api: Api,
        clusters: Clusters,
        wake: Callable[[str, str], None],
        metrics: ResourceMetrics,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._api = api
        self._clusters = clusters
        self._wake = wake
        self._metrics = metrics
        self._now = now
        self._named: dict[tuple[str, str], tuple[str, str]] = {}
        self._locks = KeyedLocks()

    @abstractmethod
    def _target(self, resource: Manifest) -> str:
        """Name of what the resource declares in Kafka."""

    @abstractmethod
    async def _run(self, resource: Manifest) -> Phase:
        """One pass over a resource that is not being deleted. Raises `KubeError`."""

    @abstractmethod
    async def _release(self, resource: Manifest) -> bool:
        """Deletes or keeps the target; returns True once the resource may go. Raises `KubeError`."""

    def changed(self, namespace: str, cluster: str, target: str | None = None) -> None:
        """A target in a cluster changed (None: any may have): wakes the resources that name it."""
        for (where, resource), (of, name) in list(self._named.items()):
            if (where, of) == (namespace, cluster) and target in (None, name):
                self._wake(where, resource)

    def forget(self, namespace: str, name: str) -> None:
        """Drops a resource that is or is being deleted."""
        self._named.pop((namespace, name), None)
        self._metrics.forget(namespace, name)

    async def reconcile(self, namespace: str, name: str) -> float:
        """One pass; returns the seconds until the next. Raises `KubeError`.

        A started pass completes even if its caller is cancelled: `finish` must come after its last write.
        """
        task = asyncio.create_task(self._pass(namespace, name), name=f"{self.kind.kind} {name}")
        return await asyncio.shield(task)

    async def finish(self, namespace: str, name: str) -> bool:
        """Cleans up before the resource is deleted; returns True once done. Raises `KubeError`."""
        async with self._locks.held(namespace, name):
            self.forget(namespace, name)
            resource = await self._api.find(self.kind, namespace, name)
            return resource is None or await self._release(resource)

    async def _pass(self, namespace: str, name: str) -> float:
        async with self._locks.held(namespace, name):
            resource = await self._api.find(self.kind, namespace, name)
            if resource is None or not has_finalizer(resource):
                return AGAIN_SEC  # the event of its finalizer wakes it
            cluster = cluster_name(resource)
            self._named[namespace, name] = (cluster, self._target(resource))
            try:
                phase = await self._run(resource)
            except KubeRefusedError as refusal:
                if refusal.reason != "Conflict":
                    raise
                return CONFLICT_AGAIN_SEC  # the resource changed concurrently
            self._metrics.show(namespace, name, cluster, phase)
            return PENDING_AGAIN_SEC if phase is Phase.PENDING else AGAIN_SEC

    async def _cluster_goes(self, resource: Manifest) -> bool:
        """True if the resource's cluster is deleted or being deleted."""
        found = await self._api.find(CLUSTER, resource["metadata"]["namespace"], cluster_name(resource))
        return found is None or "deletionTimestamp" in found["metadata"]

    async def _write_deleting(self, resource: Manifest, known: Owned, reason: str, message: str) -> None:
        verdict = Verdict(phase=Phase.DELETING, reason=reason, message=message)
        metadata, before = resource["metadata"], resource.get("status", {})
        self._metrics.show(metadata["namespace"], metadata["name"], cluster_name(resource), verdict.phase)
        status = resource_status.status(verdict, known, before, metadata["generation"], self._now())
        if status != before:
            with contextlib.suppress(KubeRefusedError):  # the resource changed concurrently: next time
                await cluster_resources.put_status(self._api, self.kind, resource, status)

    async def _record_event(self, resource: Manifest, reason: str, message: str) -> None:
        await record_event(self._api, resource, reason, message, warning=False)
