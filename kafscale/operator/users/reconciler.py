"""Reconciles users with their resources: reads, plans (`plan.py`), carries out, and writes the status.

Theory of operation. A resource owns a user once its status names the principal. That is written, with the parts that
are about to be set, before anything else, on the condition that the resource has not changed since the read. So
partial work after a crash is known as this resource's, and is removed with it. The Secret is written before the
metadata store: a password that brokers accept is always in the Secret.
"""

from collections.abc import Callable
from datetime import datetime

from kafscale.errors import CorruptDataError, StoreError
from kafscale.operator.cluster_resources import Clusters, Manifest, cluster_name, live_cluster
from kafscale.operator.errors import KafscaleConflictError
from kafscale.operator.kube.kinds import USER
from kafscale.operator.resource_metrics import ResourceMetrics
from kafscale.operator.resource_reconciler import ResourceReconciler
from kafscale.operator.resource_status import Phase
from kafscale.operator.stores.cluster_connection import NotReadyError
from kafscale.operator.stores.metadata_access import SecretError
from kafscale.operator.stores.same_cluster_store import OtherClusterError
from kafscale.operator.times import utc_now
from kafscale.operator.users import owner as user_owner
from kafscale.operator.users.one_pass import UserApi, UserPass
from kafscale.operator.users.plan import plan_removal
from kafscale.operator.users.rule_keys import RuleKeys
from kafscale.operator.users.spec import user_name
from kafscale.operator.users.status import Known, Reason
from kafscale.operator.users.work import UserWork


class UserReconciler(ResourceReconciler[UserApi]):
    """Reconciles every user."""

    kind = USER

    def __init__(
        self,
        api: UserApi,
        clusters: Clusters,
        wake: Callable[[str, str], None],
        metrics: ResourceMetrics,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(api, clusters, wake, metrics, now)
        self._rules = RuleKeys()

    def _target(self, resource: Manifest) -> str:
        return user_name(resource)

    async def _run(self, resource: Manifest) -> Phase:
        one = UserPass(self._api, self._clusters, self._rules, self._locks, self._now, resource)
        return await one.run()

    async def _release(self, resource: Manifest) -> bool:
        """Removes or keeps the user; returns True once the resource may go. Its Secret goes with it."""
        known = Known.of_status(resource.get("status", {}))
        if known.principal is None:
            return True
        namespace = resource["metadata"]["namespace"]
        why = await self._why_kept(resource)
        if why is not None:
            await self._record_event(resource, "UserKept", why)
            for each in user_owner.rivals(resource, await self._api.list(USER, namespace)):
                self._wake(namespace, each["metadata"]["name"])
            return True
        try:
            async with live_cluster(self._api, self._clusters, resource) as live:
                user = UserWork(live, self._rules, user_name(resource))
                await user.carry_out(plan_removal(known.applied, await user.find()))
        except (
            NotReadyError,
            SecretError,
            StoreError,
            CorruptDataError,
            OtherClusterError,
            KafscaleConflictError,
        ) as problem:
            await self._write_deleting(resource, known, Reason.DELETING, str(problem))
            return False
        await self._record_event(resource, "UserDeleted", f"{known.principal[:80]} is removed.")
        return True

    async def _why_kept(self, resource: Manifest) -> str | None:
        """Why the user stays although its resource is deleted, or None."""
        if await self._cluster_goes(resource):
            return (
                f"the cluster {cluster_name(resource)} is gone or goes, too: its users are left as they are"
            )
        others = user_owner.rivals(resource, await self._api.list(USER, resource["metadata"]["namespace"]))
        if others:
            return f"the user is kept: {others[0]['metadata']['name']} names it, too"
        return None
