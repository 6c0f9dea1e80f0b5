"""A managed etcd's objects under the operator, with a real API server and its controllers."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafscale.operator.cluster_spec import cluster_spec
from kafscale.operator.etcd.conditions import AS_SPECIFIED, HEALTHY, SPACE_HEALTHY
from kafscale.operator.etcd.metrics import EtcdMetrics
from kafscale.operator.etcd.reconciler import EtcdReconciler, Place
from kafscale.operator.kube.access import KubeAccess, find_access
from kafscale.operator.kube.client import KubeClient
from kafscale.operator.manifests import etcd_set
from tests.support.etcd_server import EtcdCluster, etcd_cluster
from tests.support.kube_api import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    POD,
    SERVICE,
    STATEFUL_SET,
    VOLUME_CLAIM,
    ApiRefusalError,
    Kind,
    KubeApi,
    Manifest,
)
from tests.support.kube_control_plane import ControlPlane
from tests.support.kube_namespaces import new_namespace
from tests.support.kubelet import Kubelet
from tests.support.operated_cluster import CLUSTER, OperatedCluster, is_ready
from tests.support.operator_process import OperatorProcess
from tests.support.waiting import wait_until, wait_until_async

NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy")
NAMES = ("c-etcd-0", "c-etcd-1", "c-etcd-2")
MANAGED: dict[str, Any] = {"managed": {}}


def members(api: KubeApi) -> dict[str, Manifest]:
    """etcd's pods by their names."""
    labels = "app.kubernetes.io/instance=c,app.kubernetes.io/component=etcd"
    return {each["metadata"]["name"]: each for each in api.select(POD, labels=labels)}


def all_ready(api: KubeApi) -> bool:
    found = members(api)
    return len(found) == 3 and all(is_ready(pod) for pod in found.values())


def test_managed_etcd_precedes_brokers_and_keeps_its_volumes(
    api: KubeApi, kubelet: Kubelet, operator: OperatorProcess
) -> None:
    cluster = OperatedCluster(api)
    cluster.make(etcd=MANAGED)
    cluster.wait(lambda: all_ready(api), "three members run")
    cluster.wait(lambda: len(cluster.pods()) == 3, "the brokers come after them")
    cluster.wait(lambda: cluster.condition(HEALTHY), "the members are told of")
    # Nobody answers: what the kubelet of this test runs is no etcd.
    assert (cluster.condition(HEALTHY)["status"], cluster.condition(HEALTHY)["reason"]) == (
        "False",
        "Forming",
    )
    assert cluster.condition(AS_SPECIFIED)["status"] == "True"
    for kind, name in (
        (STATEFUL_SET, "c-etcd"),
        (SERVICE, "c-etcd"),
        (DISRUPTION_BUDGET, "c-etcd"),
        (NETWORK_POLICY, "c-etcd"),
        (CONFIG_MAP, "c-etcd-start"),
    ):
        owner = api.get(kind, name)["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"]) == ("KafscaleCluster", "c")
    volumes = [f"data-{name}" for name in NAMES]
    assert [each["metadata"]["name"] for each in api.select(VOLUME_CLAIM)] == volumes
    token = api.get(CONFIG_MAP, "c-etcd-start")["data"]["initialClusterToken"]
    operator.kill9()
    operator.start()
    cluster.change(etcd={"managed": {"quotaBytes": 2**30}})

    def has_new_quota() -> bool:
        found = members(api).values()
        return len(found) == 3 and all(
            f"--quota-backend-bytes={2**30}" in pod["spec"]["containers"][0]["args"] for pod in found
        )

    cluster.wait(has_new_quota, "every member was replaced by one with the new quota")
    assert api.get(CONFIG_MAP, "c-etcd-start")["data"]["initialClusterToken"] == token
    cluster.delete()
    cluster.wait(lambda: not members(api), "the members are gone")
    assert [each["metadata"]["name"] for each in api.select(VOLUME_CLAIM)] == volumes


@pytest.mark.usefixtures("definitions")
def test_what_a_managed_etcd_cannot_be_is_refused(api: KubeApi) -> None:
    cluster = OperatedCluster(api)
    for secret in ("tlsSecret", "credentialsSecret"):
        with pytest.raises(ApiRefusalError, match="are for endpoints"):
            cluster.make(etcd=MANAGED | {secret: "s"})
    cluster.make(etcd=MANAGED)
    with pytest.raises(ApiRefusalError, match="members cannot change"):
        cluster.change(etcd={"managed": {"members": 5}})
    cluster.change(etcd={"managed": {"quotaBytes": 2**30}})


def test_its_pods_keep_to_the_restricted_standard(plane: ControlPlane) -> None:
    spec = {"brokers": {"replicas": 1}, "s3": {"bucket": "b"}, "etcd": MANAGED}
    with new_namespace(plane.admin, pod_security="restricted") as api:
        cluster = cluster_spec("c", api.namespace, spec)
        assert cluster.etcd.managed is not None
        api.create(etcd_set.etcd_set(cluster, cluster.etcd.managed, "etcd:1", 3))
        wait_until(lambda: sorted(members(api)) == list(NAMES), "no pod is refused")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path, names=NAMES) as started:
        yield started


@asynccontextmanager
async def passes(
    plane: ControlPlane, api: KubeApi, etcd: EtcdCluster
) -> AsyncIterator[tuple[EtcdReconciler, CollectorRegistry]]:
    """The operator's part in this process, with members that this test runs."""
    path = plane.write_kubeconfig(api.access, f"etcd-{api.namespace}", api.namespace)
    access: KubeAccess = find_access({"KUBECONFIG": str(path)})
    numbers = itertools.count()
    registry = CollectorRegistry()

    def locate(cluster: str, namespace: str, count: int) -> list[Place]:
        return [
            Place(name=each.name, client_url=each.endpoint, peer_url=each.peer_url)
            for each in etcd.members[:count]
        ]

    async with KubeClient(access) as kube:
        yield (
            EtcdReconciler(
                kube,
                "etcd:1",
                EtcdMetrics(registry),
                lambda: datetime.now(UTC),
                lambda: f"token-{next(numbers)}",
                "kafscale-system",
                locate,
            ),
            registry,
        )


@pytest.mark.usefixtures("definitions", "kubelet")
async def test_the_conditions_are_those_of_the_etcd_that_runs(
    plane: ControlPlane, api: KubeApi, etcd: EtcdCluster
) -> None:
    cluster = OperatedCluster(api)
    cluster.make(etcd=MANAGED)
    async with passes(plane, api, etcd) as (reconciler, registry):

        async def told(reason: str) -> None:
            async def is_told() -> bool:
                await reconciler.reconcile(api.namespace, "c")
                return bool(cluster.condition(HEALTHY).get("reason") == reason)

            await wait_until_async(is_told, f"the condition is {reason}")

        await told("AllMembersAnswer")
        assert api.get(CONFIG_MAP, "c-etcd-start")["data"]["phase"] == "Formed"
        assert cluster.condition(SPACE_HEALTHY)["reason"] == "EnoughRoom"
        wait_until(lambda: all_ready(api), "three members run")
        before = {name: pod["metadata"]["uid"] for name, pod in members(api).items()}
        generation = api.get(STATEFUL_SET, "c-etcd")["metadata"]["generation"]
        version = api.get(CLUSTER, "c")["metadata"]["resourceVersion"]
        await reconciler.reconcile(api.namespace, "c")
        assert api.get(CLUSTER, "c")["metadata"]["resourceVersion"] == version
        assert api.get(STATEFUL_SET, "c-etcd")["metadata"]["generation"] == generation
        etcd.members[1].kill9()
        await told("MemberDown")
        assert "c-etcd-1 does not answer" in cluster.condition(HEALTHY)["message"]
        assert cluster.events()["MemberDown"]["type"] == "Warning"
        etcd.members[1].start()
        await told("AllMembersAnswer")
        cluster.change(etcd={"managed": {"storageSize": "16Gi"}})
        await reconciler.reconcile(api.namespace, "c")
        assert "keep their size of 8Gi" in cluster.condition(AS_SPECIFIED)["message"]
        assert {name: pod["metadata"]["uid"] for name, pod in members(api).items()} == before
        labels = {"namespace": api.namespace, "cluster": "c"}
        assert registry.get_sample_value("kafscale_etcd_has_majority", labels) == 1
