"""An operator that ends after any of its writes: whoever goes on, all becomes as if it had never happened."""

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafscale.operator.clusters.reconciler import ClusterReconciler
from kafscale.operator.kube.access import from_kubeconfig
from kafscale.operator.kube.client import KubeClient
from kafscale.operator.operator_metrics import OperatorMetrics
from kafscale.operator.reconciling import Operator, Wakers
from kafscale.operator.stores.cluster_connections import ClusterConnections
from kafscale.operator.stores.metadata_access import secret_reader
from tests.support.kube_api import (
    AUTOSCALER,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    EVENT,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
    KubeApi,
    Manifest,
)
from tests.support.kube_control_plane import ControlPlane
from tests.support.kubelet import Kubelet
from tests.support.operated_cluster import CLUSTER, OperatedCluster, apply_node_reader_binding

ROLE = Kind("rbac.authorization.k8s.io/v1", "Role")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding")
KINDS = (
    STATEFUL_SET,
    AUTOSCALER,
    SERVICE,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
)
WITH_STATUS = (STATEFUL_SET, AUTOSCALER, DISRUPTION_BUDGET)
EXTERNAL = {"type": "NodePort"}
FULL = {"replicas": 5, "external": EXTERNAL, "rack": {}}
AUTOSCALED = {"autoscaling": {"minReplicas": 2, "maxReplicas": 9}, "external": EXTERNAL}
MOST_WRITES = 200


class CrashError(BaseException):
    """The process is gone."""


class MortalClient(KubeClient):
    """Ends its process after so many writes: right after the last one, or just before the next one is sent."""

    writes_left = MOST_WRITES
    written: list[str]

    async def request(self, method: str, path: str, **rest: Any) -> Manifest:
        if method == "GET":
            return await super().request(method, path, **rest)
        if self.writes_left == 0:
            raise CrashError
        self.writes_left -= 1
        self.written.append(f"{method} {path}")
        return await super().request(method, path, **rest)


def one_pass(plane: ControlPlane, api: KubeApi, writes: int = MOST_WRITES) -> int:
    """How many writes a new operator did that makes one pass over the cluster `c` and ends after so many."""
    return _short_life(plane, writes, lambda reconciler: reconciler.reconcile(api.namespace, "c"))[0]


def finishes(plane: ControlPlane, api: KubeApi, writes: int = MOST_WRITES) -> bool:
    """The same when the cluster is to go: whether all was done."""
    return _short_life(plane, writes, lambda reconciler: reconciler.finish(api.namespace, "c"))[1] is True


def _short_life(
    plane: ControlPlane, writes: int, work: Callable[[ClusterReconciler], Awaitable[object]]
) -> tuple[int, object]:
    """How many writes it did, and what came of it, None where it ended."""

    async def run() -> tuple[int, object]:
        async with MortalClient(from_kubeconfig(plane.kubeconfig)) as kube:
            kube.writes_left, kube.written = writes, []
            metrics = CollectorRegistry()
            operator = Operator(
                kube=kube,
                connections=ClusterConnections(secret_reader(kube), time.monotonic),
                image="kafscale:1",
                etcd_image="etcd:1",
                wakers=Wakers(),
                metrics=metrics,
                own_metrics=OperatorMetrics(metrics),
            )
            try:
                result = await work(ClusterReconciler(operator))
            except CrashError:
                assert len(kube.written) == writes
                result = None
            return len(kube.written), result

    return asyncio.run(run())


def settle(plane: ControlPlane, api: KubeApi) -> None:
    """Pass after pass until two more change nothing."""
    cluster = OperatedCluster(api)

    def is_settled() -> bool:
        before = objects(api)
        one_pass(plane, api)
        one_pass(plane, api)
        phase = cluster.status().get("phase")
        return phase in ("Ready", "Stopped") and objects(api) == before

    cluster.wait(is_settled, "it is settled")


def objects(api: KubeApi) -> dict[str, Any]:
    """All that is the cluster's, without what differs from one making to the next."""
    found = {}
    for kind in KINDS:
        for each in api.select(kind, labels="app.kubernetes.io/instance=c"):
            found[f"{kind.kind} {each['metadata']['name']}"] = bare(each)
    return found


def bare(found: Manifest) -> Manifest:
    kept = {key: copy.deepcopy(value) for key, value in found.items() if key not in ("metadata", "status")}
    kept["labels"] = found["metadata"].get("labels")
    for port in kept.get("spec", {}).get("ports", ()):
        port.pop("nodePort", None)
    for name in ("clusterIP", "clusterIPs", "healthCheckNodePort"):
        if kept.get("spec", {}).get(name) not in (None, "None", ["None"]):
            kept["spec"].pop(name)
    return kept


def versions(api: KubeApi) -> dict[str, object]:
    """Of all that the operator writes: another one after any write that changed something."""
    found: dict[str, object] = {CLUSTER.kind: api.get(CLUSTER, "c")["metadata"]["resourceVersion"]}
    for kind in KINDS:
        for each in api.select(kind):
            found[f"{kind.kind} {each['metadata']['name']}"] = version(kind, each)
    for each in api.select(EVENT):
        if each["involvedObject"]["kind"] == CLUSTER.kind:
            found[f"{EVENT.kind} {each['metadata']['name']}"] = each["metadata"]["resourceVersion"]
    return found


def version(kind: Kind, found: Manifest) -> object:
    """The object's version; without the writes of controllers, which write the status of some kinds at any time."""
    metadata = dict(found["metadata"])
    if kind not in WITH_STATUS:
        return metadata["resourceVersion"]
    del metadata["resourceVersion"]
    metadata["managedFields"] = [each for each in metadata["managedFields"] if "subresource" not in each]
    return metadata, found["spec"]


@pytest.fixture
def cluster(definitions: None, api: KubeApi, kubelet: Kubelet) -> OperatedCluster:
    apply_node_reader_binding(api)
    return OperatedCluster(api)


def test_passes_over_what_is_settled_change_nothing(plane: ControlPlane, cluster: OperatedCluster) -> None:
    begin(plane, cluster, None, FULL)
    settle(plane, cluster.api)
    before = versions(cluster.api)
    for _ in range(3):
        one_pass(plane, cluster.api)
    assert versions(cluster.api) == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, FULL, id="creation"),
        pytest.param(None, AUTOSCALED, id="autoscaled creation"),
        pytest.param(FULL, FULL | {"replicas": 2, "external": None, "rack": None}, id="shrinking"),
        pytest.param(FULL, AUTOSCALED | {"replicas": None, "rack": None}, id="to an autoscaler"),
        pytest.param(AUTOSCALED, FULL | {"autoscaling": None}, id="from an autoscaler"),
    ],
)
def test_an_end_after_any_write_changes_nothing_in_the_end(
    plane: ControlPlane, cluster: OperatedCluster, before: Manifest | None, after: Manifest
) -> None:
    api = cluster.api
    begin(plane, cluster, before, after)
    writes = one_pass(plane, api)
    settle(plane, api)
    expected = objects(api)
    assert writes >= 5
    begin(plane, cluster, before, after)
    for last in range(1, writes):  # what was written already is written again, to no effect
        one_pass(plane, api, last)
        assert number_is_kept(api), f"after {last} writes"
    settle(plane, api)
    assert objects(api) == expected


def begin(plane: ControlPlane, cluster: OperatedCluster, before: Manifest | None, after: Manifest) -> None:
    """A new cluster that is settled, and wants something else from now on."""
    if cluster.api.find(CLUSTER, "c") is not None:
        cluster.delete()
        cluster.wait(lambda: not objects(cluster.api) and not cluster.pods(), "the last one is gone")
    cluster.make(brokers=before or after)
    if before is not None:
        settle(plane, cluster.api)
        cluster.change(brokers=after)


def number_is_kept(api: KubeApi) -> bool:
    """Nobody fell back to one broker on the way: none of the specifications here asks for fewer than two."""
    found = api.find(STATEFUL_SET, "c-broker")
    return found is None or found["spec"]["replicas"] >= 2


def test_an_end_while_the_brokers_stop_leaves_nothing_behind(
    plane: ControlPlane, cluster: OperatedCluster, kubelet: Kubelet
) -> None:
    api = cluster.api
    for last in range(1, 5):
        begin(plane, cluster, FULL, FULL)
        api.patch(CLUSTER, "c", {"metadata": {"finalizers": ["kafscale.io/finalizer"]}})
        kubelet.hold_end("c-broker-*")
        cluster.delete()
        finishes(plane, api, last)
        kubelet.let_end("c-broker-*")
        cluster.wait(lambda: finishes(plane, api), "all is done")
        assert not cluster.pods()
        assert api.find(STATEFUL_SET, "c-broker") is None
        assert not cluster.node_readers()
        api.patch(CLUSTER, "c", {"metadata": {"finalizers": None}})
