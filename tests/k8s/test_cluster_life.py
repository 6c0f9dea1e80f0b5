"""A cluster's life under the operator, with a real API server and its controllers."""

import pytest

from kafscale.operator import api_names
from tests.support.kube_api import (
    AUTOSCALER,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
    KubeApi,
)
from tests.support.kubelet import Fate, Kubelet
from tests.support.operated_cluster import CLUSTER, OperatedCluster, is_ready
from tests.support.operator_process import IMAGE, OperatorProcess

OWNED = {
    STATEFUL_SET: ["c-broker"],
    SERVICE: ["c-bootstrap", "c-brokers"],
    CONFIG_MAP: ["c-broker-settings"],
    DISRUPTION_BUDGET: ["c-broker"],
    SERVICE_ACCOUNT: ["c-broker"],
}
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role")
AUTOSCALED = {"replicas": None, "autoscaling": {"minReplicas": 3, "maxReplicas": 9}}
GIVEN = {"replicas": 4, "autoscaling": None}


@pytest.fixture
def cluster(api: KubeApi, kubelet: Kubelet, operator: OperatorProcess) -> OperatedCluster:
    return OperatedCluster(api)


def owned(api: KubeApi, kind: Kind) -> list[str]:
    """The names of those that go with the cluster."""
    return [
        each["metadata"]["name"]
        for each in api.select(kind)
        if any(owner["kind"] == api_names.CLUSTER for owner in each["metadata"].get("ownerReferences", ()))
    ]


def test_a_cluster_is_made_and_reports_its_state(cluster: OperatedCluster) -> None:
    cluster.make(config={"flushIntervalMs": 250})
    status = cluster.wait_phase("Ready")
    assert {kind: owned(cluster.api, kind) for kind in OWNED} == OWNED
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 3, 3)
    assert status["bootstrapServers"] == f"c-bootstrap.{cluster.api.namespace}.svc:9092"
    assert cluster.condition("Ready")["message"] == "All 3 brokers are ready."
    assert (cluster.condition("Accepted")["status"], cluster.condition("Progressing")["status"]) == (
        "True",
        "False",
    )
    settings = cluster.api.get(CONFIG_MAP, "c-broker-settings")["data"]
    assert (settings["KAFSCALE_FLUSH_INTERVAL_MS"], settings["KAFSCALE_S3_BUCKET"]) == ("250", "records")
    pod = cluster.pods()["c-broker-0"]["spec"]
    assert pod["containers"][0]["image"].partition("@")[0].endswith(IMAGE)
    assert pod["serviceAccountName"] == "c-broker"
    assert cluster.events().keys() >= {"Valid", "BrokersReady"}


def test_a_new_setting_reaches_one_broker_after_the_other(cluster: OperatedCluster, kubelet: Kubelet) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    before = cluster.uids()
    kubelet.hold_end("c-broker-*")
    cluster.change(config={"flushIntervalMs": 250})
    for broker_id in (2, 1, 0):
        wait_for_next(cluster, kubelet, before, broker_id)
    kubelet.let_end("c-broker-*")
    assert cluster.wait_phase("Ready")["updatedReplicas"] == 3


def wait_for_next(cluster: OperatedCluster, kubelet: Kubelet, before: dict[str, str], broker_id: int) -> None:
    """That broker is replaced, all with higher ids have been, and until it is ready nobody else is touched."""
    name = f"c-broker-{broker_id}"
    cluster.wait(lambda: ends(cluster, name), f"{name} ends")
    kubelet.decide(name, Fate.UNREADY)
    kubelet.let_end("c-broker-*")
    cluster.wait(lambda: cluster.uids().get(name, before[name]) != before[name], f"{name} is replaced")
    kubelet.hold_end("c-broker-*")
    cluster.wait(lambda: cluster.status()["readyReplicas"] == 2, "two are ready")
    replaced = {f"c-broker-{each}" for each in range(broker_id, 3)}
    assert {each for each, uid in cluster.uids().items() if uid != before[each]} == replaced
    assert not any(ends(cluster, each) for each in before)
    assert cluster.status()["phase"] == "Progressing"
    # The operator may have seen the pod before the StatefulSet's own status.
    cluster.wait(
        lambda: cluster.condition("Progressing")["reason"] == "RollingOut", "the reason is the change"
    )
    kubelet.decide(name, Fate.READY)


def ends(cluster: OperatedCluster, pod: str) -> bool:
    return bool(cluster.pods().get(pod, {"metadata": {}})["metadata"].get("deletionTimestamp"))


def test_fatal_setting_reaches_only_one_broker(cluster: OperatedCluster, kubelet: Kubelet) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    before = cluster.uids()
    kubelet.hold_end("c-broker-2")
    cluster.change(config={"flushIntervalMs": 250})
    cluster.wait(lambda: ends(cluster, "c-broker-2"), "c-broker-2 ends")
    kubelet.decide("c-broker-2", Fate.CRASHING)
    kubelet.let_end("c-broker-2")
    cluster.wait_phase("Degraded")
    cluster.wait(lambda: cluster.status()["readyReplicas"] == 2, "two are ready")
    assert cluster.condition("Ready")["reason"] == "PodsFail"
    assert "c-broker-2: CrashLoopBackOff" in cluster.condition("Ready")["message"]
    assert cluster.events()["PodsFail"]["type"] == "Warning"
    after = cluster.uids()
    assert {each for each in before if before[each] != after[each]} == {"c-broker-2"}
    # The way back needs no hand: what fails is replaced first.
    kubelet.decide("c-broker-2", None)
    cluster.change(config={"flushIntervalMs": 500})
    cluster.wait_phase("Ready")


def test_autoscaler_takes_over_current_replicas_and_returns_them(cluster: OperatedCluster) -> None:
    cluster.make(brokers={"replicas": 6})
    cluster.wait_phase("Ready")
    before = cluster.uids()
    cluster.change(brokers=AUTOSCALED)
    cluster.wait(lambda: owned(cluster.api, AUTOSCALER) == ["c-broker"], "there is an autoscaler")
    cluster.wait_phase("Ready")
    assert (cluster.replicas(), cluster.uids()) == (6, before), "nothing was reset, nobody was replaced"
    cluster.api.scale(STATEFUL_SET, "c-broker", 8)  # as the autoscaler does it
    cluster.wait(lambda: cluster.status()["readyReplicas"] == 8, "eight are ready")
    cluster.change(config={"flushIntervalMs": 250})
    cluster.wait_phase("Ready")
    assert cluster.replicas() == 8, "the operator leaves the number alone while it changes everything else"
    cluster.change(brokers=GIVEN)
    cluster.wait(lambda: cluster.status()["replicas"] == 4 and len(cluster.pods()) == 4, "four are left")
    assert owned(cluster.api, AUTOSCALER) == []
    cluster.wait_phase("Ready")
    cluster.api.scale(STATEFUL_SET, "c-broker", 7)
    cluster.wait(lambda: cluster.replicas() == 4, "what the specification says is so again")


def test_an_autoscaled_cluster_begins_with_the_fewest(cluster: OperatedCluster) -> None:
    cluster.make(brokers=AUTOSCALED | {"autoscaling": {"minReplicas": 2, "maxReplicas": 9}})
    cluster.wait_phase("Ready")
    assert cluster.replicas() == 2
    cluster.wait(lambda: owned(cluster.api, AUTOSCALER) == ["c-broker"], "there is an autoscaler")
    # There are no metrics here, and it says so.
    cluster.wait(
        lambda: cluster.condition("Autoscaling").get("status") == "False", "the autoscaler has looked"
    )
    assert cluster.condition("Autoscaling")["reason"] == "FailedGetResourceMetric"


def test_a_cluster_stops_and_goes_on(cluster: OperatedCluster) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    cluster.api.scale(CLUSTER, "c", 0)  # kubectl scale kafscalecluster c --replicas=0
    assert cluster.wait_phase("Stopped")["readyReplicas"] == 0
    assert cluster.pods() == {}
    assert {kind: owned(cluster.api, kind) for kind in OWNED} == OWNED, "everything else is kept"
    cluster.api.scale(CLUSTER, "c", 2)
    assert cluster.wait_phase("Ready")["readyReplicas"] == 2


def test_an_autoscaled_cluster_comes_back_from_nothing(cluster: OperatedCluster) -> None:
    cluster.make(brokers={"replicas": 0})
    cluster.wait_phase("Stopped")
    cluster.change(brokers=AUTOSCALED)
    assert cluster.wait_phase("Ready")["readyReplicas"] == 3


def test_brokers_stop_before_what_they_write_to_goes(cluster: OperatedCluster, kubelet: Kubelet) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    kubelet.hold_end("c-broker-1")
    cluster.delete()
    cluster.wait(lambda: set(cluster.pods()) == {"c-broker-1"}, "one broker still hands over")
    cluster.wait(lambda: cluster.status()["phase"] == "Deleting", "it tells that it goes")
    assert cluster.api.find(CONFIG_MAP, "c-broker-settings"), "all else waits"
    kubelet.let_end("c-broker-1")
    cluster.wait(lambda: cluster.api.find(CLUSTER, "c") is None, "the cluster is gone")
    cluster.wait(lambda: not any(owned(cluster.api, kind) for kind in OWNED), "all that it owned is gone")


def test_orphaned_brokers_continue_and_are_adopted_again(cluster: OperatedCluster) -> None:
    """Found: the brokers were stopped, or waited for without an end, by which of two was faster."""
    cluster.make()
    cluster.wait_phase("Ready")
    before = cluster.uids()
    cluster.api.delete(CLUSTER, "c", propagation="Orphan")
    cluster.wait(lambda: cluster.api.find(CLUSTER, "c") is None, "the cluster is gone")
    assert (cluster.uids(), owned(cluster.api, STATEFUL_SET)) == (before, [])
    cluster.make()
    cluster.wait_phase("Ready")
    assert (cluster.uids(), owned(cluster.api, STATEFUL_SET)) == (before, ["c-broker"])


def test_operator_restarted_during_broker_stop_continues(
    cluster: OperatedCluster, kubelet: Kubelet, operator: OperatorProcess
) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    kubelet.hold_end("c-broker-0")
    cluster.delete()
    cluster.wait(lambda: cluster.status().get("phase") == "Deleting", "it goes")
    operator.stop()
    kubelet.let_end("c-broker-0")
    cluster.wait(lambda: cluster.pods() == {}, "the brokers have ended")
    assert cluster.api.find(CLUSTER, "c"), "it is held until an operator has seen that"
    operator.start()
    cluster.wait(lambda: cluster.api.find(CLUSTER, "c") is None, "the cluster is gone")


def test_the_operator_shows_what_it_does(cluster: OperatedCluster, operator: OperatorProcess) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    assert operator.page("/healthz") == "ok\n"
    assert operator.page("/readyz") == "ok\n"
    samples = operator.page("/metrics").splitlines()
    assert "kafscale_operator_leading 1.0" in samples
    ready = f'kafscale_cluster_ready{{cluster="c",namespace="{cluster.api.namespace}"}} 1.0'
    cluster.wait(
        lambda: ready in operator.page("/metrics").splitlines(), "it shows that the cluster is ready"
    )
    cluster.delete()
    cluster.wait(
        lambda: "kafscale_cluster_ready{" not in operator.page("/metrics"), "and nothing of one that is gone"
    )


def test_brokers_start_when_most_members_of_their_etcd_are_ready(
    cluster: OperatedCluster, kubelet: Kubelet
) -> None:
    kubelet.decide("c-etcd-*", Fate.UNREADY)
    cluster.make(etcd={"managed": {}})
    cluster.wait_phase("Pending")
    cluster.wait(lambda: cluster.api.find(STATEFUL_SET, "c-etcd"), "there is an etcd")
    assert cluster.condition("Progressing")["reason"] == "Waiting"
    assert "0 of 3 etcd members are ready" in cluster.condition("Ready")["message"]
    assert cluster.api.find(STATEFUL_SET, "c-broker") is None
    kubelet.decide("c-etcd-0", Fate.READY)
    kubelet.decide("c-etcd-1", Fate.READY)
    cluster.wait(lambda: cluster.status().get("readyReplicas") == 3, "the brokers are there")


def test_an_address_for_each_broker_comes_and_goes_with_it(
    cluster: OperatedCluster, kubelet: Kubelet
) -> None:
    external = {
        "type": "LoadBalancer",
        "hostTemplate": "kafka-{id}.example.com",
        "bootstrapHost": "kafka.example.com",
    }
    cluster.make(brokers={"replicas": 3, "external": external})
    status = cluster.wait_phase("Ready")
    assert status["externalBootstrapServers"] == "kafka.example.com:9094"

    def addresses() -> list[str]:
        return [name for name in owned(cluster.api, SERVICE) if name.endswith("-external")]

    names = [f"c-broker-{broker_id}-external" for broker_id in range(3)]
    assert addresses() == ["c-bootstrap-external", *names]
    kubelet.hold_end("c-broker-2")
    cluster.change(brokers={"replicas": 2})
    cluster.wait(lambda: ends(cluster, "c-broker-2"), "the third hands over")
    cluster.wait(lambda: cluster.status()["replicas"] == 2, "the operator has looked")
    assert names[2] in addresses(), "it is reached while it hands over"
    kubelet.let_end("c-broker-2")
    cluster.wait(lambda: addresses() == ["c-bootstrap-external", *names[:2]], "its address goes after it")
    cluster.change(brokers={"external": None})
    cluster.wait(lambda: addresses() == [], "all go")


def test_brokers_keep_zone_rights_as_long_as_they_need_them(cluster: OperatedCluster) -> None:
    cluster.make(brokers={"replicas": 2, "rack": {}, "external": {"type": "NodePort"}})
    cluster.wait_phase("Ready")
    role = cluster.api.get(ROLE, "c-broker")
    assert role["rules"][0]["resourceNames"] == ["c-broker-0-external", "c-broker-1-external"]
    assert cluster.node_readers() == ["c-broker"]
    cluster.change(brokers={"external": None})
    cluster.wait(lambda: cluster.api.find(ROLE, "c-broker") is None, "the role is taken back")
    assert cluster.node_readers() == ["c-broker"], "its zone is on the node"
    cluster.delete()
    cluster.wait(lambda: cluster.api.find(CLUSTER, "c") is None, "the cluster is gone")
    assert cluster.node_readers() == []


def test_a_change_by_hand_is_put_right(cluster: OperatedCluster) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    container = {"name": "broker", "image": "other:1"}
    pod = {"spec": {"containers": [container]}}
    cluster.api.patch(STATEFUL_SET, "c-broker", {"spec": {"template": pod}})
    cluster.api.delete(DISRUPTION_BUDGET, "c-broker")
    cluster.wait(lambda: owned(cluster.api, DISRUPTION_BUDGET) == ["c-broker"], "the budget is back")

    def image() -> str:
        return str(cluster.broker_set()["spec"]["template"]["spec"]["containers"][0]["image"])

    cluster.wait(lambda: image().endswith(IMAGE), "the image is back")
    # The phase may still be that of before: brokers of the wrong image are being replaced.
    cluster.wait(lambda: [is_ready(pod) for pod in cluster.pods().values()] == [True] * 3, "all are ready")
    cluster.wait_phase("Ready")


def test_impossible_spec_stops_nothing(cluster: OperatedCluster) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    before = cluster.uids()
    external = {"type": "LoadBalancer", "hostTemplate": "kafka.example.com"}
    cluster.change(brokers={"replicas": 5, "external": external})
    cluster.wait_phase("Failed")
    accepted = cluster.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert "hostTemplate='kafka.example.com' is the same for every broker" in accepted["message"]
    assert cluster.events()["InvalidSpec"]["type"] == "Warning"
    assert (cluster.uids(), cluster.replicas()) == (before, 3)
    assert cluster.status()["readyReplicas"] == 3
    assert cluster.status()["bootstrapServers"] == f"c-bootstrap.{cluster.api.namespace}.svc:9092"
    cluster.change(brokers={"replicas": 3, "external": None})
    cluster.wait_phase("Ready")
    assert cluster.uids() == before


def test_a_refusal_of_kubernetes_is_reported_in_its_words(cluster: OperatedCluster) -> None:
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    cluster.make(brokers={"replicas": 3, "resources": resources})
    cluster.wait_phase("Failed")
    assert cluster.condition("Accepted")["reason"] == "ApiInvalid"
    assert "must be less than or equal to cpu limit" in cluster.condition("Accepted")["message"]
    cluster.change(brokers={"resources": {"requests": {"cpu": "1"}}})
    cluster.wait_phase("Ready")


def test_an_object_of_another_owner_is_left_alone(cluster: OperatedCluster) -> None:
    own = {"selector": {"app": "mine"}, "ports": [{"port": 80}]}
    metadata = {"name": "c-bootstrap"}
    cluster.api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": own})
    cluster.make()
    cluster.wait_phase("Failed")
    assert "Service c-bootstrap is there already" in cluster.condition("Accepted")["message"]
    assert cluster.api.get(SERVICE, "c-bootstrap")["spec"]["selector"] == {"app": "mine"}
    cluster.api.delete(SERVICE, "c-bootstrap")
    cluster.wait_phase("Ready")


def test_brokers_that_cannot_start_are_reported(cluster: OperatedCluster, kubelet: Kubelet) -> None:
    kubelet.decide("c-broker-*", Fate.STUCK)
    cluster.make()
    cluster.wait_phase("Degraded")
    assert "c-broker-0: ImagePullBackOff" in cluster.condition("Ready")["message"]
    kubelet.decide("c-broker-*", None)
    cluster.wait_phase("Ready")
    assert cluster.condition("Ready")["status"] == "True"


def test_a_broker_that_ends_of_itself_makes_the_cluster_degraded(
    cluster: OperatedCluster, kubelet: Kubelet
) -> None:
    cluster.make()
    cluster.wait_phase("Ready")
    kubelet.decide("c-broker-1", Fate.UNREADY)
    cluster.wait_phase("Degraded")
    assert cluster.condition("Ready")["message"] == "2 of 3 brokers are ready."
    assert cluster.condition("Progressing")["status"] == "False"
    kubelet.decide("c-broker-1", None)
    cluster.wait_phase("Ready")
