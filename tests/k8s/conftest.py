"""One control plane for all tests here; for each test a namespace of its own and a kubelet for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.operator import api_names
from kafscale.operator.schema.definitions import all_definitions
from tests.support.chart_install import Helm
from tests.support.image_build import Image, built
from tests.support.kube_api import CLUSTER_ROLE, KubeApi
from tests.support.kube_control_plane import ControlPlane, control_plane
from tests.support.kube_definitions import defined, undefine
from tests.support.kube_namespaces import new_namespace
from tests.support.kubelet import Kubelet, acting_kubelet
from tests.support.operated_cluster import CLUSTER_ROLE_BINDING
from tests.support.operator_process import OperatorProcess, Operators, operators
from tests.support.reporting import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

SHARED_ROLES = (api_names.NODE_READER_ROLE, "kafscale-view", "kafscale-edit")
"""Of the chart, whatever the release."""


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane, ready."""
    with control_plane(tmp_path_factory.mktemp("control-plane")) as started:
        yield started


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Image]]:
    """The image of each of the Dockerfile's stages; "" is the last."""
    project = Path(__file__).resolve().parents[2]
    with built(project / "Dockerfile", project, tmp_path_factory.mktemp("image")) as found:
        yield found


@pytest.fixture(autouse=True)
def left_as_found(plane: ControlPlane) -> Iterator[None]:
    """Objects of no namespace go after each test, and controllers work as they did before it."""
    server = plane.server.pid
    yield
    for name in SHARED_ROLES:
        if plane.admin.find(CLUSTER_ROLE, name):
            plane.admin.delete(CLUSTER_ROLE, name)
    if plane.admin.find(CLUSTER_ROLE_BINDING, api_names.NODE_READER_ROLE):
        plane.admin.delete(CLUSTER_ROLE_BINDING, api_names.NODE_READER_ROLE)
    if plane.server.pid != server:
        plane.restart_controllers()


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[KubeApi]:
    """An administrator's API within a namespace of the test's own, which is `api.namespace`."""
    with new_namespace(plane.admin) as within:
        yield within


@pytest.fixture
def kubelet(api: KubeApi) -> Iterator[Kubelet]:
    """Runs the pods of the test's namespace."""
    with acting_kubelet(api, api.namespace) as acting:
        yield acting


@pytest.fixture(scope="module")
def definitions(plane: ControlPlane) -> Iterator[None]:
    """KafscaleCluster and KafscaleTopic are served."""
    with defined(plane.admin, *all_definitions()):
        yield


@pytest.fixture
def installed(definitions: None, plane: ControlPlane, api: KubeApi, tmp_path: Path) -> Iterator[Operators]:
    """The operator's rights in the test's namespace; no replica is started."""
    with operators(plane, api, tmp_path) as found:
        yield found


@pytest.fixture
def operator(installed: Operators) -> OperatorProcess:
    """One replica, started."""
    replica = installed.replica()
    replica.start()
    return replica


@pytest.fixture
def helm(plane: ControlPlane, api: KubeApi, tmp_path: Path) -> Iterator[Helm]:
    """Objects that releases leave behind for all are removed afterwards."""
    yield Helm(plane, api, tmp_path)
    for definition in all_definitions():
        undefine(plane.admin, definition)
