"""An operator that is there before the definitions of its resources: no test here may have them from a fixture."""

from pathlib import Path

from kafscale.operator.schema.definitions import all_definitions
from tests.support.kube_api import KubeApi
from tests.support.kube_control_plane import ControlPlane
from tests.support.kube_definitions import defined
from tests.support.kubelet import Kubelet
from tests.support.operated_cluster import CLUSTER, OperatedCluster
from tests.support.operator_process import operators
from tests.support.waiting import wait_until


def test_operator_started_before_definitions_waits_for_them(
    plane: ControlPlane, api: KubeApi, kubelet: Kubelet, tmp_path: Path
) -> None:
    with operators(plane, api, tmp_path) as installed:
        replica = installed.replica()
        replica.start()
        wait_until(lambda: "is not defined" in replica.log_text(), "it says what it waits for")
        with defined(plane.admin, *all_definitions()):
            cluster = OperatedCluster(api)
            cluster.make(brokers={"replicas": 1})
            cluster.wait_phase("Ready")
            cluster.delete()
            cluster.wait(lambda: api.find(CLUSTER, "c") is None, "the cluster is gone")
            replica.stop()
