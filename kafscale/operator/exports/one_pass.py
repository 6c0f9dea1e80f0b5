"""One pass over a KafscaleExport that is not being deleted."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from kafscale.operator.cluster_resources import (
    Clusters,
    Manifest,
    ResourceApi,
    live_cluster,
    verdict_of,
    write_verdict,
)
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.clusters.owned_objects import is_owned_by
from kafscale.operator.clusters.status import pod_problems
from kafscale.operator.exports.metrics import ExportLags
from kafscale.operator.exports.progress import TopicProgress, read_progress
from kafscale.operator.exports.spec import ExportSpec, export_spec
from kafscale.operator.exports.status import Known, Reason, verdict
from kafscale.operator.exports.workload import kind_of_workload, selector, workload
from kafscale.operator.kube.kinds import CLUSTER, CRON_JOB, DEPLOYMENT, EXPORT, POD
from kafscale.operator.kube.roles import Applies, Deletes
from kafscale.operator.manifests import names
from kafscale.operator.resource_status import Phase, Verdict
from kafscale.operator.stores.cluster_connection import LiveCluster

_ENDED: Final = ("Succeeded", "Failed")


class ExportApi(ResourceApi, Applies, Deletes, Protocol):
    """The part of `KubeClient` that is needed here."""


class _NameTakenError(Exception):
    """Something else has the name of the export's workload."""


class ExportPass:
    """One pass over one resource that is not being deleted."""

    def __init__(
        self,
        api: ExportApi,
        clusters: Clusters,
        lags: ExportLags,
        now: Callable[[], datetime],
        resource: Manifest,
    ) -> None:
        self._api = api
        self._clusters = clusters
        self._lags = lags
        self._now = now
        self._resource = resource
        self._known = Known.before(resource.get("status", {}))

    async def run(self) -> Phase:
        """Carries the resource out as far as possible, writes the status, returns the phase. Raises `KubeError`."""
        try:
            found = await verdict_of(self._carry_out())
        except _NameTakenError as problem:
            found = Verdict(phase=Phase.FAILED, reason=Reason.NAME_TAKEN, message=str(problem))
        await write_verdict(self._api, EXPORT, self._resource, found, self._known, self._now())
        return found.phase

    async def _carry_out(self) -> Verdict:
        metadata = self._resource["metadata"]
        wanted = export_spec(metadata["name"], metadata["namespace"], self._resource["spec"])
        async with live_cluster(self._api, self._clusters, self._resource) as live:
            found = await self._keep_workload(wanted, await self._cluster(wanted))
            topics = await self._progress(wanted, live)
        pods = await self._api.list(POD, wanted.namespace, selector(wanted))
        going = [pod for pod in pods if pod.get("status", {}).get("phase") not in _ENDED]
        self._known = Known.seen(found, topics)
        self._lags.show(wanted, topics, self._now().timestamp())
        return verdict(found, topics, pod_problems(going))

    async def _cluster(self, wanted: ExportSpec) -> ClusterSpec:
        """The cluster's specification, of which `live_cluster` knows that it is legal. Raises `KubeError`."""
        found = await self._api.find(CLUSTER, wanted.namespace, wanted.cluster)
        spec: Mapping[str, Any] = {} if found is None else found["spec"]
        return cluster_spec(wanted.cluster, wanted.namespace, spec)

    async def _keep_workload(self, wanted: ExportSpec, cluster: ClusterSpec) -> Manifest:
        """The CronJob or Deployment, as declared; the other one is deleted. Raises `_NameTakenError`, `KubeError`."""
        uid, name, kind = (
            self._resource["metadata"]["uid"],
            names.export(wanted.name),
            kind_of_workload(wanted),
        )
        there = await self._api.find(kind, wanted.namespace, name)
        if there is not None and not is_owned_by(there, uid):
            raise _NameTakenError(
                f"{kind.kind} {name} is there already and is not this export's: rename the export, or remove it"
            )
        other = DEPLOYMENT if kind is CRON_JOB else CRON_JOB
        old = await self._api.find(other, wanted.namespace, name)
        if old is not None and is_owned_by(old, uid):
            await self._api.delete(other, wanted.namespace, name, uid=old["metadata"]["uid"])
        await self._api.apply(workload(wanted, cluster, self._resource))
        found = await self._api.find(kind, wanted.namespace, name)
        return found or workload(wanted, cluster, self._resource)

    async def _progress(self, wanted: ExportSpec, live: LiveCluster) -> list[TopicProgress]:
        topics = {record.name: record for record in live.view.topics()}
        return await read_progress(live.store, wanted, topics)
