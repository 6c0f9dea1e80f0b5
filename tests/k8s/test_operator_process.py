"""Where and when an operator works: one of several, beside its API server, in one namespace or in all."""

import asyncio
import signal
from pathlib import Path

from kafscale.operator import api_names
from tests.support.kube_access import HOST
from tests.support.kube_api import CONFIG_MAP, LEASE, KubeApi
from tests.support.kube_control_plane import ControlPlane
from tests.support.kube_namespaces import new_namespace
from tests.support.kubelet import Kubelet
from tests.support.left_sockets import IGNORED_WHEN_A_SERVER_ENDS
from tests.support.operated_cluster import CLUSTER, OperatedCluster
from tests.support.operator_process import OperatorProcess, Operators, operators
from tests.support.tcp_proxy import tcp_proxy
from tests.support.waiting import PATIENCE_SEC, wait_until


def leads(replica: OperatorProcess) -> bool:
    return " leads" in replica.log_text()


def one_leader(*replicas: OperatorProcess) -> OperatorProcess:
    """The one that leads; all must have looked at the lease."""
    wait_until(lambda: all("stands by" in each.log_text() for each in replicas), "all take part")
    wait_until(lambda: any(leads(each) for each in replicas), "one leads")
    leading = [each for each in replicas if leads(each)]
    assert len(leading) == 1
    return leading[0]


def test_one_of_two_works_and_the_other_takes_over(
    api: KubeApi, kubelet: Kubelet, installed: Operators
) -> None:
    first, second = installed.replica("first"), installed.replica("second")
    first.start()
    second.start()
    cluster = OperatedCluster(api)
    cluster.make()
    cluster.wait_phase("Ready")
    leader = one_leader(first, second)
    stand_by = second if leader is first else first
    holder = installed.leader()
    leader.kill9()
    cluster.change(config={"flushIntervalMs": 250})
    wait_until(lambda: installed.leader() not in ("", holder), "the other one leads")
    cluster.wait_phase("Ready")
    assert api.get(CONFIG_MAP, "c-broker-settings")["data"]["KAFSCALE_FLUSH_INTERVAL_MS"] == "250"
    leader.start()  # it stands by now
    wait_until(lambda: leader.log_text().count("stands by") == 2, "it takes part again")
    assert stand_by.stop() < 15
    wait_until(lambda: leader.log_text().count(" leads") == 2, "what was given back is taken at once", 10)
    assert api.select(LEASE)[0]["spec"]["leaseTransitions"] >= 2
    leader.stop()
    assert installed.leader() == ""


def test_sleeping_operator_exits_once_it_has_a_successor(
    api: KubeApi, kubelet: Kubelet, installed: Operators
) -> None:
    first = installed.replica("first")
    first.start()
    cluster = OperatedCluster(api)
    cluster.make()
    cluster.wait_phase("Ready")
    second = installed.replica("second")
    second.start()
    first.send_signal(signal.SIGSTOP)
    wait_until(lambda: leads(second), "the other one leads")
    cluster.change(brokers={"replicas": 4})
    cluster.wait_phase("Ready")
    first.send_signal(signal.SIGCONT)
    assert first.wait_exit(PATIENCE_SEC) == 1
    assert "leadership is lost" in first.log_text()
    cluster.change(brokers={"replicas": 2})
    assert cluster.wait_phase("Ready")["replicas"] == 2
    second.stop()


@IGNORED_WHEN_A_SERVER_ENDS
def test_an_operator_outlives_the_api_server(
    api: KubeApi, kubelet: Kubelet, operator: OperatorProcess, plane: ControlPlane
) -> None:
    cluster = OperatedCluster(api)
    cluster.make()
    cluster.wait_phase("Ready")
    plane.server.kill9()
    plane.server.start()
    wanted = cluster.change(brokers={"replicas": 2})["metadata"]["generation"]

    def is_carried_out() -> bool:
        if (
            operator.exit_code is not None
        ):  # too long without its lease, on a busy machine: a kubelet restarts it
            assert "leadership is lost" in operator.log_text()
            operator.start()
        status = cluster.status()
        return (status["phase"], status["replicas"], status["observedGeneration"]) == ("Ready", 2, wanted)

    cluster.wait(is_carried_out, "two brokers are ready")


async def test_leader_keeps_working_when_its_connections_break(
    api: KubeApi, kubelet: Kubelet, installed: Operators, plane: ControlPlane
) -> None:
    async with tcp_proxy(plane.server.port) as proxy:
        operator = installed.replica(server=f"https://{HOST}:{proxy.port}")
        operator.start()
        cluster = OperatedCluster(api)
        cluster.make()
        await asyncio.to_thread(cluster.wait_phase, "Ready")
        for replicas in (2, 4):
            await proxy.cut()
            cluster.change(brokers={"replicas": replicas})
            assert (await asyncio.to_thread(cluster.wait_phase, "Ready"))["replicas"] == replicas
        assert operator.exit_code is None
        assert operator.log_text().count(" leads") == 1


def test_each_cluster_of_a_namespace_is_its_own(
    api: KubeApi, kubelet: Kubelet, operator: OperatorProcess
) -> None:
    one, other = OperatedCluster(api, "one"), OperatedCluster(api, "other")
    one.make()
    other.make(brokers={"replicas": 1})
    one.wait_phase("Ready")
    other.wait_phase("Ready")
    one.delete()
    one.wait(lambda: one.pods() == {}, "its brokers are gone")
    assert other.wait_phase("Ready")["readyReplicas"] == 1
    assert set(other.pods()) == {"other-broker-0"}
    assert api_names.FIELD_MANAGER in other.broker_set()["metadata"]["labels"].values()


def test_an_operator_of_all_namespaces_looks_after_each(
    definitions: None, plane: ControlPlane, api: KubeApi, kubelet: Kubelet, tmp_path: Path
) -> None:
    with new_namespace(plane.admin) as home, operators(plane, home, tmp_path, everywhere=True) as installed:
        replica = installed.replica()
        replica.start()
        cluster = OperatedCluster(api)
        cluster.make(brokers={"replicas": 1})
        cluster.wait_phase("Ready")
        cluster.delete()
        cluster.wait(lambda: api.find(CLUSTER, "c") is None, "the cluster is gone")
        replica.stop()
