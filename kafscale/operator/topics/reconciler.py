"""Reconciles topics with their resources: reads, plans (`plan.py`), carries out, and writes the status.

Theory of operation. A resource owns a topic once its status names it (`Known.name`). That is written, with the
configs that are about to be set, before the topic is touched, on the condition that the resource has not changed
since the read. So partial work after a crash is known as this resource's: it is continued, reset once the resource
no longer names it, and deleted with the resource. A resource never deletes a topic that it did not own.
"""

from kafscale.errors import CorruptDataError, StoreError
from kafscale.metadata.model import TopicRecord
from kafscale.operator.cluster_resources import Manifest, ResourceApi, cluster_name, live_cluster
from kafscale.operator.errors import SpecError
from kafscale.operator.kube.kinds import TOPIC
from kafscale.operator.resource_reconciler import ResourceReconciler
from kafscale.operator.resource_status import Phase
from kafscale.operator.stores.cluster_connection import NotReadyError
from kafscale.operator.stores.metadata_access import SecretError
from kafscale.operator.stores.same_cluster_store import OtherClusterError
from kafscale.operator.topics import owner as topic_owner
from kafscale.operator.topics.one_pass import TopicPass
from kafscale.operator.topics.spec import DeletionPolicy
from kafscale.operator.topics.status import Known, Reason
from kafscale.operator.topics.work import Removal, TopicWork
from kafscale.protocol.error_codes import KafkaError


class TopicReconciler(ResourceReconciler[ResourceApi]):
    """Reconciles every topic."""

    kind = TOPIC

    def _target(self, resource: Manifest) -> str:
        return topic_owner.topic_name(resource)

    async def _run(self, resource: Manifest) -> Phase:
        return await TopicPass(self._api, self._clusters, self._locks, self._now, resource).run()

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
                message = problem or f"the brokers remove the records of topic {known.name}"
                await self._write_deleting(resource, known, Reason.DELETING, message)
                return False
            why = f"another topic has the name {known.name} by now: that is kept"
        await self._record_event(resource, "TopicKept", why)
        self.changed(namespace, cluster_name(resource), known.name)
        return True

    async def _why_kept(self, resource: Manifest) -> str | None:
        """Why the topic stays although its resource is deleted, or None."""
        name = topic_owner.topic_name(resource)
        if resource["spec"].get("deletionPolicy", DeletionPolicy.DELETE) == DeletionPolicy.RETAIN:
            return f"deletionPolicy is Retain: topic {name} and its records are kept"
        if await self._cluster_goes(resource):
            cluster = cluster_name(resource)
            return f"the cluster {cluster} is gone or goes, too: topic {name} and its records are left as they are"
        others = topic_owner.rivals(resource, await self._api.list(TOPIC, resource["metadata"]["namespace"]))
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
        except (
            NotReadyError,
            SecretError,
            SpecError,
            StoreError,
            CorruptDataError,
            KafkaError,
            OtherClusterError,
        ) as problem:
            return Removal.IN_PROGRESS, str(problem)


def _is_same(record: TopicRecord, known: Known) -> bool:
    """True if it is the resource's topic; one whose creation was interrupted has no known id."""
    return known.topic_id in (None, Known.of_record(record, {}).topic_id)
