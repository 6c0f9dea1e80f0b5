"""`kafscale pod` with a real API server: the rights of the brokers' account are enough, and no more than needed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.manifests import broker_account, broker_services
from tests.support.kube_api import (
    CLUSTER_ROLE,
    NODE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    ApiRefusalError,
    Kind,
    KubeApi,
)
from tests.support.kube_control_plane import ControlPlane
from tests.support.kubelet import ZONES, Kubelet
from tests.support.left_sockets import IGNORED_WHEN_A_SERVER_ENDS
from tests.support.operated_cluster import apply_node_reader_binding
from tests.support.pod_broker import PodBroker
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_SEC, wait_until
from tests.support.wire import Wire

CLUSTER_ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")
ZONE_LABEL = "topology.kubernetes.io/zone"
NODE_NAME = "node-2"
ZONE = {"rack": {"topologyKey": ZONE_LABEL}}
BALANCED = {"external": {"type": "LoadBalancer", "port": 9094}}
NODE_PORT = {"external": {"type": "NodePort", "port": 9094}}


@pytest.fixture
def admin(plane: ControlPlane, api: KubeApi, kubelet: Kubelet) -> KubeApi:
    """The API within the test's namespace; there are nodes, and the role that the chart makes."""
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    metadata = {"name": api_names.NODE_READER_ROLE}
    api.apply(
        {"apiVersion": CLUSTER_ROLE.api_version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}
    )
    apply_node_reader_binding(api)
    return api


@pytest.fixture
def public_node(admin: KubeApi) -> Iterator[str]:
    """The node's address for everybody."""
    addresses = [
        {"type": "InternalIP", "address": "10.0.0.2"},
        {"type": "ExternalIP", "address": "203.0.113.2"},
    ]
    admin.patch(NODE, NODE_NAME, {"status": {"addresses": addresses}}, subresource="status")
    yield "203.0.113.2"
    admin.patch(NODE, NODE_NAME, {"status": {"addresses": []}}, subresource="status")


def cluster(namespace: str, **brokers: Any) -> ClusterSpec:
    spec = {
        "brokers": {"replicas": 1} | brokers,
        "s3": {"bucket": "records"},
        "etcd": {"endpoints": ["etcd:2379"]},
    }
    return cluster_spec("events", namespace, spec)


def apply_account(admin: KubeApi, wanted: ClusterSpec, broker_count: int = 1) -> None:
    found = broker_account.account(wanted, broker_count)
    for one in found:
        admin.apply(one)
    if broker_account.reads_nodes(wanted):
        reader = broker_account.service_account(broker_account.account_name(wanted), wanted.namespace)
        admin.patch(CLUSTER_ROLE_BINDING, api_names.NODE_READER_ROLE, {"subjects": [reader]})


def apply_services(admin: KubeApi, wanted: ClusterSpec, broker_count: int = 1) -> None:
    for one in broker_services.outside(wanted, broker_count):
        admin.apply(one)


def balance(admin: KubeApi, broker_id: int, host: str) -> None:
    """Does as a cloud's controller when the load balancer is there."""
    status = {"loadBalancer": {"ingress": [{"hostname": host}]}}
    admin.patch(SERVICE, f"events-broker-{broker_id}-external", {"status": status}, subresource="status")


@contextlib.contextmanager
def pod(plane: ControlPlane, namespace: str, folder: Path, **variables: str) -> Iterator[PodBroker]:
    """One with the account's token, not started."""
    in_pod = {"POD_NAMESPACE": namespace, "NODE_NAME": NODE_NAME, **variables}
    broker = PodBroker(folder, plane.admin.access.server, in_pod, external_addr=f"127.0.0.1:{free_port()}")
    broker.give_access(plane.service_account(namespace, "events-broker"))
    try:
        yield broker
    finally:
        broker.close()


def told_outside(broker: PodBroker) -> tuple[str, int, str | None]:
    """Host, port and rack of the only broker, as a client of its external address is told."""
    host, _, port = str(broker.settings["external_addr"]).partition(":")
    with contextlib.closing(Wire(host, int(port))) as wire:
        told = wire.call(MetadataRequest(topics=[]), MetadataResponse, 8)
    (only,) = told.brokers
    return only.host, only.port, only.rack


def reason(broker: PodBroker) -> str:
    return broker.http_get("/readyz")[1] if broker.answers() else ""


def test_broker_waits_for_rights_service_and_load_balancer(
    plane: ControlPlane, admin: KubeApi, tmp_path: Path
) -> None:
    """It may be started before any of them: the operator makes all at once, and a cloud takes minutes."""
    wanted = cluster(admin.namespace, **ZONE, **BALANCED)
    name = "events-broker-0-external"
    admin.create(broker_account.account(wanted, 0)[0])
    variables = {"RACK_LABEL": ZONE_LABEL, "EXTERNAL_SERVICE": name}
    with pod(plane, admin.namespace, tmp_path, **variables) as broker:
        broker.launch_only()
        wait_until(lambda: f"service {name} was refused: services" in reason(broker), "it lacks the right")
        apply_account(admin, wanted)
        wait_until(lambda: f'"{name}\\" not found' in reason(broker), "there is no service")
        apply_services(admin, wanted)
        wait_until(lambda: "no address by its load balancer yet" in reason(broker), "there is no balancer")
        assert broker.http_get("/healthz")[0] == 200
        balance(admin, 0, "lb-0.example.com")
        wait_until(broker.ready, "it serves")
        assert told_outside(broker) == ("lb-0.example.com", 9094, ZONES[NODE_NAME])
        broker.stop()


def test_a_node_port_is_found_with_the_nodes_address(
    plane: ControlPlane, admin: KubeApi, public_node: str, tmp_path: Path
) -> None:
    wanted = cluster(admin.namespace, **NODE_PORT)
    apply_account(admin, wanted)
    apply_services(admin, wanted)
    name = "events-broker-0-external"
    given = admin.get(SERVICE, name)["spec"]["ports"][0]["nodePort"]
    with pod(plane, admin.namespace, tmp_path, EXTERNAL_SERVICE=name) as broker:
        broker.start()
        assert told_outside(broker) == (public_node, given, None)
        broker.stop()


def test_a_host_that_is_given_needs_only_the_nodes_port(
    plane: ControlPlane, admin: KubeApi, tmp_path: Path
) -> None:
    wanted = cluster(admin.namespace, external=NODE_PORT["external"] | {"hostTemplate": "k-{id}.example.com"})
    apply_account(admin, wanted)
    apply_services(admin, wanted)
    assert not admin.select(CLUSTER_ROLE_BINDING, labels=f"{api_names.INSTANCE}=events")
    name = "events-broker-0-external"
    given = admin.get(SERVICE, name)["spec"]["ports"][0]["nodePort"]
    variables = {"EXTERNAL_SERVICE": name, "KAFSCALE_EXTERNAL_HOST": "k-0.example.com"}
    with pod(plane, admin.namespace, tmp_path, **variables) as broker:
        broker.start()
        assert told_outside(broker) == ("k-0.example.com", given, None)
        broker.stop()


@IGNORED_WHEN_A_SERVER_ENDS
def test_crashed_broker_returns_without_api_server(
    plane: ControlPlane, admin: KubeApi, tmp_path: Path
) -> None:
    wanted = cluster(admin.namespace, **ZONE, **BALANCED)
    apply_account(admin, wanted)
    apply_services(admin, wanted)
    balance(admin, 0, "lb-0.example.com")
    variables = {"RACK_LABEL": ZONE_LABEL, "EXTERNAL_SERVICE": "events-broker-0-external"}
    with pod(plane, admin.namespace, tmp_path, **variables) as broker:
        broker.start()
        before = told_outside(broker)
        broker.kill9()
        plane.server.kill9()
        try:
            broker.start(timeout_s=PATIENCE_SEC)
        finally:
            plane.server.start()
        assert told_outside(broker) == before == ("lb-0.example.com", 9094, ZONES[NODE_NAME])
        broker.stop()


@pytest.mark.parametrize("brokers", [{}, ZONE, BALANCED, NODE_PORT], ids=["none", "zone", "lb", "node port"])
def test_its_account_may_do_nothing_else(
    plane: ControlPlane, admin: KubeApi, brokers: dict[str, Any]
) -> None:
    wanted = cluster(admin.namespace, **brokers)
    apply_account(admin, wanted)
    apply_services(admin, cluster(admin.namespace, **BALANCED), 2)
    as_broker = KubeApi(plane.service_account(admin.namespace, "events-broker"), admin.namespace)

    def may_get(kind: Kind, name: str) -> bool:
        try:
            as_broker.get(kind, name)
        except ApiRefusalError as refusal:
            assert refusal.reason == "Forbidden", refusal
            return False
        return True

    with contextlib.closing(as_broker):
        assert may_get(NODE, NODE_NAME) == (brokers in (ZONE, NODE_PORT))
        assert may_get(SERVICE, "events-broker-0-external") == (brokers in (BALANCED, NODE_PORT))
        assert not may_get(SERVICE, "events-broker-1-external"), "there is only one broker"
        assert not may_get(SECRET, "any")
        assert not may_get(SERVICE_ACCOUNT, "events-broker")
        for kind in (NODE, SERVICE, SECRET):
            with pytest.raises(ApiRefusalError, match="Forbidden"):
                as_broker.select(kind)
