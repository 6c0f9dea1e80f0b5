"""Reconciles exports with their resources: keeps a CronJob or Deployment, and shows what the export has reached.

Theory of operation. The workload is owned by the resource and goes with it; nothing else is made, and no table is
touched. Two exports of a topic are kept apart by the topic's lease, not here. The status is read from the metadata
store, where exporters leave their progress; the operator asks no pod and no table.
"""

from collections.abc import Callable
from datetime import datetime

from kafscale.operator.cluster_resources import Clusters, Manifest
from kafscale.operator.exports.metrics import ExportLags
from kafscale.operator.exports.one_pass import ExportApi, ExportPass
from kafscale.operator.kube.kinds import EXPORT
from kafscale.operator.resource_metrics import ResourceMetrics
from kafscale.operator.resource_reconciler import ResourceReconciler
from kafscale.operator.resource_status import Phase
from kafscale.operator.times import utc_now


class ExportReconciler(ResourceReconciler[ExportApi]):
    """Reconciles every export."""

    kind = EXPORT

    def __init__(
        self,
        api: ExportApi,
        clusters: Clusters,
        wake: Callable[[str, str], None],
        metrics: ResourceMetrics,
        lags: ExportLags,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(api, clusters, wake, metrics, now)
        self._lags = lags

    def forget(self, namespace: str, name: str) -> None:
        """Drops a resource that is or is being deleted."""
        super().forget(namespace, name)
        self._lags.forget(namespace, name)

    def _target(self, resource: Manifest) -> str:
        return str(resource["metadata"]["name"])

    async def _run(self, resource: Manifest) -> Phase:
        return await ExportPass(self._api, self._clusters, self._lags, self._now, resource).run()

    async def _release(self, resource: Manifest) -> bool:
        return True  # Kubernetes deletes what the resource owns
