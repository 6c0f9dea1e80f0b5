"""Reconciles topics with their resources: reads, plans (`plan.py`), carries out, and writes the status.

Theory of operation. A resource owns a topic once its status names it (`Known.name`). That is written, with the
configs that are about to be set, before the topic is touched, on the condition that the resource has not changed
since the read. So partial work after a crash is known as this resource's: it is continued, reset once the resource
no longer names it, and deleted with the resource. A resource never deletes a topic that it did not own.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Final

from kafscale.errors import StoreError
from kafscale.metadata.model import TopicRecord
from kafscale.operator.errors import KubeRefusedError, SpecError
from kafscale.operator.keyed_locks import KeyedLocks
from kafscale.operator.kube.kinds import CLUSTER, TOPIC
from kafscale.operator.stores.cluster_connection import NotReadyError
from kafscale.operator.stores.metadata_access import SecretError
from kafscale.operator.stores.same_cluster_store import OtherClusterError
from kafscale.operator.times import utc_now
from kafscale.operator.topics import owner as topic_owner
from kafscale.operator.topics.metrics import TopicMetrics
from kafscale.operator.topics.one_pass import TopicPass
from kafscale.operator.topics.resource import (
    Clusters,
    Manifest,
    TopicApi,
    has_finalizer,
    live_cluster,
    new_status,
    put_status,
    record_event,
)
from kafscale.operator.topics.spec import DeletionPolicy
from kafscale.operator.topics.status import Known, Phase, Reason, Verdict
from kafscale.operator.topics.work import Removal, TopicWork
from kafscale.protocol.error_codes import KafkaError

AGAIN_SEC: Final = 60.0
"""Interval of passes without a change; the metadata store is watched."""

PENDING_AGAIN_SEC: Final = 10.0
CONFLICT_AGAIN_SEC: Final = 0.1


class TopicReconciler:
    """Reconciles every topic. Its memory only serves wake-ups and keeps passes apart.

    `wake`: called with the namespace and name of a resource that needs a pass.
    """

    def __init__(
        self,
        api: TopicApi,
        clusters: Clusters,
        wake: Callable[[str, str], None],
        metrics: TopicMetrics,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._api = api
        self._clusters = clusters
        self._wake = wake
        self._metrics = metrics
        self._now = now
        self._named: dict[tuple[str, str], tuple[str, str]] = {}
        self._locks = KeyedLocks()

    def changed(self, namespace: str, cluster: str, topic: str | None) -> None:
        """A topic of a cluster changed (None: any may have): wakes the resources that name it."""
        for (where, resource), (of, name) in list(self._named.items()):
            if (where, of) == (namespace, cluster) and topic in (None, name):
                self._wake(where, resource)

    def forget(self, namespace: str, name: str) -> None:
        """Drops a resource that is or is being deleted."""
        self._named.pop((namespace, name), None)
        self._metrics.forget(namespace, name)

    async def reconcile(self, namespace: str, name: str) -> float:
        """One pass; returns the seconds until the next. Raises `KubeError`.

        A started pass completes even if its caller is cancelled: `finish` must come after its last write.
        """
        return await asyncio.shield(asyncio.create_task(self._pass(namespace, name), name=f"topic {name}"))

    async def finish(self, namespace: str, name: str) -> bool:
        """Cleans up before the resource is deleted; returns True once done. Raises `KubeError`."""
        async with self._locks.held(namespace, name):
            self.forget(namespace, name)
            resource = await self._api.find(TOPIC, namespace, name)
            return resource is None or await self._release(resource)

    async def _pass(self, namespace: str, name: str) -> float:
        async with self._locks.held(namespace, name):
            resource = await self._api.find(TOPIC, namespace, name)
            if resource is None or not has_finalizer(resource):
                return AGAIN_SEC  # the event of its finalizer wakes it
            cluster = topic_owner.cluster_name(resource)
            self._named[namespace, name] = (cluster, topic_owner.topic_name(resource))
            try:
                phase = await TopicPass(self._api, self._clusters, self._locks, self._now, resource).run()
            except KubeRefusedError as refusal:
                if refusal.reason != "Conflict":
                    raise
                return CONFLICT_AGAIN_SEC  # the resource changed concurrently
            self._metrics.show(namespace, name, cluster, phase)
            return PENDING_AGAIN_SEC if phase is Phase.PENDING else AGAIN_SEC

    async def _release(self, resource: Manifest) -> bool:
        """Deletes or keeps the topic; returns True once the resource may go."""
        known = Known.of_status(resource.get("status", {}))
        if known.name is None:
            return True
        namespace = resource["metadata"]["namespace"]
        why = await self._why_kept(resource)
        if why is None:
            removal, problem = await self._remove(resource, known)
            if removal is Removal.GONE:
                await self._record_event(resource, "TopicDeleted", f"Topic {known.name} is deleted.")
                return True
            if removal is Removal.IN_PROGRESS:
                await self._write_deleting(resource, known, problem)
                return False
            why = f"another topic has the name {known.name} by now: that is kept"
        await self._record_event(resource, "TopicKept", why)
        self.changed(namespace, topic_owner.cluster_name(resource), known.name)
        return True

    async def _why_kept(self, resource: Manifest) -> str | None:
        """Why the topic stays although its resource is deleted, or None."""
        name = topic_owner.topic_name(resource)
        if resource["spec"].get("deletionPolicy", DeletionPolicy.DELETE) == DeletionPolicy.RETAIN:
            return f"deletionPolicy is Retain: topic {name} and its records are kept"
        namespace, cluster = resource["metadata"]["namespace"], topic_owner.cluster_name(resource)
        found = await self._api.find(CLUSTER, namespace, cluster)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return f"the cluster {cluster} is gone or goes, too: topic {name} and its records are left as they are"
        others = topic_owner.rivals(resource, await self._api.list(TOPIC, namespace))
        if others:
            return f"topic {name} is kept: {others[0]['metadata']['name']} names it, too"
        return None

    async def _remove(self, resource: Manifest, known: Known) -> tuple[Removal, str]:
        """Deletes the topic; returns the progress, and the problem if any."""
        try:
            async with live_cluster(self._api, self._clusters, resource) as live:
                work = TopicWork(live)
                name = topic_owner.topic_name(resource)
                found = await work.find(name)
                if found is not None and not _is_same(found, known):
                    return Removal.ANOTHER, ""
                return await work.remove(name, found.topic_id if found is not None else None), ""
        except (NotReadyError, SecretError, SpecError, StoreError, KafkaError, OtherClusterError) as problem:
            return Removal.IN_PROGRESS, str(problem)

    async def _write_deleting(self, resource: Manifest, known: Known, problem: str) -> None:
        message = problem or f"the brokers remove the records of topic {known.name}"
        verdict = Verdict(phase=Phase.DELETING, reason=Reason.DELETING, message=message)
        namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        self._metrics.show(namespace, name, topic_owner.cluster_name(resource), verdict.phase)
        status = new_status(resource, verdict, known, self._now())
        if status != resource.get("status"):
            with contextlib.suppress(KubeRefusedError):  # the resource changed concurrently: next time
                await put_status(self._api, resource, status)

    async def _record_event(self, resource: Manifest, reason: str, message: str) -> None:
        await record_event(self._api, resource, reason, message, warning=False)


def _is_same(record: TopicRecord, known: Known) -> bool:
    """True if it is the resource's topic; one whose creation was interrupted has no known id."""
    return known.topic_id in (None, Known.of_record(record, {}).topic_id)
