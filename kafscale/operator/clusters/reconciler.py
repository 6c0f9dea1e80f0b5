"""Reconciles a cluster with its resource: reads, plans (`plan.py`), applies, and writes the status."""

import logging
from typing import Any

from kafscale.operator import api_names, conditions
from kafscale.operator.certificates import CA
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.clusters import certificates
from kafscale.operator.clusters.node_readers import keep_node_readers
from kafscale.operator.clusters.owned_objects import apply_own, is_owned_by, owned_by
from kafscale.operator.clusters.plan import PRUNED, ClusterPlan, check_protocol, plan_cluster, stale
from kafscale.operator.clusters.status import ClusterStatus, Seen, deleting, judge, pod_problems, refused
from kafscale.operator.errors import KubeRefusedError, SpecError
from kafscale.operator.kube.client import Manifest
from kafscale.operator.kube.kinds import AUTOSCALER, CLUSTER, POD, SECRET, SERVICE, STATEFUL_SET
from kafscale.operator.manifests import names
from kafscale.operator.manifests.broker_account import reads_nodes
from kafscale.operator.reconciling import Operator
from kafscale.operator.stores.metadata_access import secret_data
from kafscale.operator.times import utc_now

_logger = logging.getLogger(__name__)

AGAIN_SEC = 30.0
"""Interval of passes without a change: not every kind of object is watched."""

UNREADY_AGAIN_SEC = 5.0
"""The same while the cluster is not ready: pods are not watched."""

CONFLICT_AGAIN_SEC = 0.2

MOST_ROUNDS = 3
"""Create the set, give its number another owner, stop naming the number."""

_ORPHAN = "orphan"
"""Kubernetes' finalizer that orphans objects instead of deleting them."""

_SETTLED = ("Ready", "Stopped")


class ClusterReconciler:
    """Reconciles every cluster; stateless."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._kube = operator.kube
        self._metrics = operator.own_metrics

    async def reconcile(self, namespace: str, name: str) -> float:
        """One pass; returns the seconds until the next. Raises `KubeError`; the whole pass is retried then."""
        resource = await self._kube.find(CLUSTER, namespace, name)
        if resource is None or resource["metadata"].get("deletionTimestamp"):
            return AGAIN_SEC
        try:
            status = await self._carry_out(resource)
        except SpecError as problem:
            status = await self._refused(resource, "InvalidSpec", str(problem))
        except KubeRefusedError as refusal:
            if refusal.reason == "Conflict":  # a concurrent write: read again
                return CONFLICT_AGAIN_SEC
            if refusal.reason not in ("Invalid", "Forbidden", "BadRequest"):
                raise
            status = await self._refused(resource, f"Api{refusal.reason}", refusal.message)
        await self._write_status(resource, status)
        is_settled = status.phase in _SETTLED
        self._metrics.show_cluster(namespace, name, ready=is_settled)
        return AGAIN_SEC if is_settled else UNREADY_AGAIN_SEC

    async def finish(self, namespace: str, name: str) -> bool:
        """Stops the brokers before their stores are deleted; the rest is deleted with the resource."""
        self._metrics.forget_cluster(namespace, name)
        resource = await self._kube.find(CLUSTER, namespace, name)
        if resource is None:
            return True
        uid = resource["metadata"]["uid"]
        brokers = names.brokers(name)
        if await self._are_orphaned(resource):
            return True
        await self._delete_owned(AUTOSCALER, namespace, brokers, uid)
        await self._delete_owned(STATEFUL_SET, namespace, brokers, uid)
        pods = await self._kube.list(POD, namespace, api_names.selector(name, names.BROKER))
        if pods:
            await self._write_status(resource, deleting(f"{len(pods)} brokers hand over and stop."))
            return False
        await keep_node_readers(self._kube, namespace)
        return True

    async def _are_orphaned(self, resource: Manifest) -> bool:
        """True if the resource is deleted with `--cascade=orphan`: its brokers stay."""
        metadata = resource["metadata"]
        if _ORPHAN in metadata.get("finalizers", ()):
            return True
        live = await self._broker_set(metadata["namespace"], metadata["name"])
        return live is not None and not is_owned_by(live, metadata["uid"])

    async def _carry_out(self, resource: Manifest) -> ClusterStatus:
        metadata = resource["metadata"]
        cluster = cluster_spec(metadata["name"], metadata["namespace"], resource["spec"])
        live = await self._broker_set(cluster.namespace, cluster.name)
        check_protocol(cluster, live)
        waits_for = await self._waits_for(cluster, live)
        plan = plan_cluster(cluster, resource, self._operator.image, live)
        # The number of brokers gets its own owner in steps, each from the state after the last one.
        for _ in range(0 if waits_for is not None else MOST_ROUNDS):
            await self._apply(cluster, plan, metadata["uid"])
            live = await self._broker_set(cluster.namespace, cluster.name)
            if plan.replicas.within is None:
                break
            plan = plan_cluster(cluster, resource, self._operator.image, live)
        return judge(cluster, await self._see(cluster, resource, plan, live, waits_for))

    async def _refused(self, resource: Manifest, reason: str, message: str) -> ClusterStatus:
        metadata = resource["metadata"]
        live = await self._broker_set(metadata["namespace"], metadata["name"])
        return refused(reason, message, resource.get("status", {}), live)

    async def _broker_set(self, namespace: str, name: str) -> Manifest | None:
        return await self._kube.find(STATEFUL_SET, namespace, names.brokers(name))

    async def _waits_for(self, cluster: ClusterSpec, live: Manifest | None) -> str | None:
        """Why the first start of brokers has to wait, or None."""
        managed = cluster.etcd.managed
        if managed is None or live is not None:
            return None
        etcd = await self._kube.find(STATEFUL_SET, cluster.namespace, names.etcd(cluster.name))
        ready = 0 if etcd is None else etcd.get("status", {}).get("readyReplicas", 0)
        if ready > managed.members // 2:
            return None
        return f"{ready} of {managed.members} etcd members are ready; brokers start when most are."

    async def _apply(self, cluster: ClusterSpec, plan: ClusterPlan, uid: str) -> None:
        if cluster.brokers.autoscaling is None:  # the number never has two owners
            await self._delete_owned(AUTOSCALER, cluster.namespace, names.brokers(cluster.name), uid)
        await self._keep_certificates(cluster, plan, uid)
        for manifest in (*plan.before, plan.broker_set):
            await apply_own(self._kube, manifest, cluster, uid)
        if plan.scale is not None:
            await self._kube.apply(plan.scale, field_manager=api_names.SCALE_FIELD_MANAGER)
        for manifest in plan.after:
            await apply_own(self._kube, manifest, cluster, uid)
        if not await keep_node_readers(self._kube, cluster.namespace) and reads_nodes(cluster):
            raise SpecError(
                f"brokers that ask for their zone or node need the ClusterRoleBinding {api_names.NODE_READER_ROLE}, "
                "which the chart makes with the custom resource definitions (crds.install)"
            )
        await self._prune(cluster, plan, uid)

    async def _keep_certificates(self, cluster: ClusterSpec, plan: ClusterPlan, uid: str) -> None:
        found = {}
        for name in certificates.secret_names(cluster):
            secret = await self._kube.find(SECRET, cluster.namespace, name)
            if secret is not None:
                found[name] = secret_data(secret)
        given = cluster.security.client_ca_secret
        if given is not None and CA not in found.get(given, {}):
            raise SpecError(f"security.clientCaSecret: there is no Secret {given} with {CA}")
        for manifest in certificates.plan_secrets(cluster, plan.addresses, found, utc_now()):
            await apply_own(self._kube, owned_by(manifest, cluster.name, uid), cluster, uid)

    async def _prune(self, cluster: ClusterSpec, plan: ClusterPlan, uid: str) -> None:
        selector = api_names.selector(cluster.name, names.BROKER)
        for kind in PRUNED:
            found = await self._kube.list(kind, cluster.namespace, selector)
            for name in stale(kind, found, plan, uid):
                _logger.info("%s/%s: deleting %s %s", cluster.namespace, cluster.name, kind.kind, name)
                await self._kube.delete(kind, cluster.namespace, name)

    async def _see(
        self,
        cluster: ClusterSpec,
        resource: Manifest,
        plan: ClusterPlan,
        live: Manifest | None,
        waits_for: str | None,
    ) -> Seen:
        selector = api_names.selector(cluster.name, names.BROKER)
        pods = await self._kube.list(POD, cluster.namespace, selector)
        autoscaler = external = None
        if cluster.brokers.autoscaling is not None:
            autoscaler = await self._kube.find(AUTOSCALER, cluster.namespace, names.brokers(cluster.name))
        if cluster.brokers.external is not None:
            service = names.external_bootstrap(cluster.name)
            external = await self._kube.find(SERVICE, cluster.namespace, service)
        return Seen(
            wanted=_wanted(cluster, plan, live),
            broker_set=live,
            problems=pod_problems(pods),
            waits_for=waits_for,
            autoscaler=autoscaler,
            external=external,
            before=resource.get("status", {}).get("conditions", ()),
        )

    async def _delete_owned(self, kind: Any, namespace: str, name: str, uid: str) -> None:
        """Deletes the object if this cluster owns it."""
        found = await self._kube.find(kind, namespace, name)
        if found is not None and is_owned_by(found, uid) and not found["metadata"].get("deletionTimestamp"):
            await self._kube.delete(kind, namespace, name, uid=found["metadata"]["uid"])

    async def _write_status(self, resource: Manifest, status: ClusterStatus) -> None:
        """Records an event for each condition that turned, then applies the status if it differs."""
        metadata, before = resource["metadata"], resource.get("status", {})
        told = before.get("conditions", [])
        wanted = status.as_map(told, metadata["generation"], utc_now())
        ours = {each["type"]: each for each in wanted["conditions"]}
        known = {each["type"]: each for each in told if each["type"] in ours}
        is_same = all(before.get(key) == value for key, value in wanted.items() if key != "conditions")
        if is_same and known == ours:
            return
        # Events first: a crash between the two repeats an event, and loses none.
        for condition in conditions.changed(told, status.conditions):
            is_warning = status.is_warning(condition)
            await self._kube.event(resource, condition.reason, condition.message, warning=is_warning)
        await self._kube.apply_status(CLUSTER, metadata["namespace"], metadata["name"], wanted)


def _wanted(cluster: ClusterSpec, plan: ClusterPlan, live: Manifest | None) -> int:
    """The desired number of brokers, after the plan was applied."""
    if cluster.brokers.replicas is not None or live is None:
        return plan.replicas.wanted
    return int(live["spec"].get("replicas", plan.replicas.wanted))
