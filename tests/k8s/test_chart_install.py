"""The chart installed, changed and removed with helm itself."""

import functools
from typing import Any

import pytest

from kafscale.operator import api_names
from kafscale.operator.schema.definitions import all_definitions
from tests.chart.values_sets import DIRECT
from tests.k8s.conftest import SHARED_ROLES
from tests.support.chart_install import Helm
from tests.support.helm import CHART, HelmError
from tests.support.k8s_install import helm_missing
from tests.support.kube_api import (
    AUTOSCALER,
    CLUSTER_ROLE,
    CONFIG_MAP,
    CRD,
    DEPLOYMENT,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    ApiRefusalError,
    Kind,
    KubeApi,
)
from tests.support.kube_control_plane import ControlPlane
from tests.support.kube_namespaces import new_namespace
from tests.support.kubelet import Fate, Kubelet
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(helm_missing() is not None, reason=str(helm_missing()))

CLUSTER = Kind(api_names.API_VERSION, api_names.CLUSTER)
CLUSTER_NAMES = [each["metadata"]["name"] for each in all_definitions()]
SPEC = {"brokers": {"replicas": 1}, "s3": {"bucket": "records"}, "etcd": {"endpoints": ["http://etcd:2379"]}}


def cluster(name: str) -> dict[str, Any]:
    metadata = {"name": name}
    return {
        "apiVersion": api_names.API_VERSION,
        "kind": "KafscaleCluster",
        "metadata": metadata,
        "spec": SPEC,
    }


def served(plane: ControlPlane) -> None:
    wait_until(functools.partial(plane.admin.serves, CLUSTER), "KafscaleCluster is served")


def test_installation_runs_two_operators_and_serves_resources(
    plane: ControlPlane, api: KubeApi, kubelet: Kubelet, helm: Helm
) -> None:
    said = helm.install("kafscale", {})
    assert "deployment/kafscale-operator" in said
    assert f"orders-bootstrap.{api.namespace}.svc:9092" in said
    wait_until(
        lambda: api.get(DEPLOYMENT, "kafscale-operator")["status"].get("readyReplicas") == 2, "both are ready"
    )
    served(plane)
    api.create(cluster("c"))
    with pytest.raises(ApiRefusalError, match="exactly one of replicas and autoscaling"):
        api.create(cluster("d") | {"spec": SPEC | {"brokers": {}}})


def test_definitions_and_clusters_survive_a_reinstallation(
    plane: ControlPlane, api: KubeApi, helm: Helm
) -> None:
    helm.install("kafscale", {})
    served(plane)
    uid = api.create(cluster("c"))["metadata"]["uid"]
    helm.run("uninstall", "kafscale", "--wait")
    assert api.find(DEPLOYMENT, "kafscale-operator") is None
    assert api.get(CLUSTER, "c")["metadata"]["uid"] == uid
    helm.install("kafscale", {"operator": {"replicas": 1}})
    assert api.get(DEPLOYMENT, "kafscale-operator")["spec"]["replicas"] == 1
    assert api.get(CLUSTER, "c")["metadata"]["uid"] == uid


def test_definitions_are_deleted_with_release_unless_kept(
    plane: ControlPlane, api: KubeApi, helm: Helm
) -> None:
    helm.install("kafscale", {"crds": {"keep": False}})
    assert plane.admin.find(CRD, CLUSTER_NAMES[0])
    helm.run("uninstall", "kafscale", "--wait")
    wait_until(lambda: not any(plane.admin.find(CRD, name) for name in CLUSTER_NAMES), "they are gone")
    assert not any(plane.admin.find(CLUSTER_ROLE, role) for role in SHARED_ROLES)


def test_an_upgrade_brings_the_definitions_up_to_date(plane: ControlPlane, helm: Helm) -> None:
    helm.install("kafscale", {})
    definition = plane.admin.get(CRD, CLUSTER_NAMES[0])
    # As if an older chart had left a definition without short names.
    plane.admin.patch(CRD, CLUSTER_NAMES[0], {"spec": {"names": {"shortNames": None}}})
    helm.install("kafscale", {"operator": {"replicas": 1}})
    names = plane.admin.get(CRD, CLUSTER_NAMES[0])["spec"]["names"]
    assert names["shortNames"] == definition["spec"]["names"]["shortNames"]


def test_second_release_leaves_shared_objects_to_the_first(
    plane: ControlPlane, api: KubeApi, helm: Helm
) -> None:
    helm.install("first", {"operator": {"watchNamespaces": [api.namespace]}})
    with new_namespace(plane.admin) as other:
        values = {"operator": {"watchNamespaces": [other.namespace]}}
        with pytest.raises(HelmError, match="invalid ownership metadata"):
            helm.run(
                *("install", "second", str(CHART), "--namespace", other.namespace),
                *("--set-json", f'operator.watchNamespaces=["{other.namespace}"]'),
            )
        helm.install("second", values | {"crds": {"install": False}})
        helm.run("uninstall", "second", "--wait")
    assert plane.admin.find(CRD, CLUSTER_NAMES[0])


@pytest.mark.parametrize("is_everywhere", [True, False], ids=["all namespaces", "one namespace"])
def test_the_operator_may_do_what_it_does_and_no_more(
    plane: ControlPlane, api: KubeApi, helm: Helm, is_everywhere: bool
) -> None:
    helm.install("kafscale", {"operator": {"watchAllNamespaces": is_everywhere}})
    served(plane)
    operator = KubeApi(plane.service_account(api.namespace, "kafscale-operator"), api.namespace)
    try:
        wait_until(lambda: _may(operator, CLUSTER, api.namespace), "its rights count")
        assert _may(operator, STATEFUL_SET, api.namespace)
        assert _may(operator, CLUSTER, "*") is is_everywhere
        assert _may(operator, CLUSTER, "default") is is_everywhere
        assert not _may(operator, SECRET, api.namespace), "it reads those that are named, and lists none"
        assert not _may(operator, DEPLOYMENT, api.namespace)
        with pytest.raises(ApiRefusalError, match="Forbidden"):
            operator.delete(CLUSTER, "c")
        with pytest.raises(ApiRefusalError, match="Forbidden"):
            operator.delete(POD, "c-broker-0")
        _refuses_to_give_what_it_has_not(operator)
    finally:
        operator.close()


@pytest.mark.parametrize("role", ["view", "edit"])
def test_who_may_change_a_namespace_may_change_its_clusters(
    plane: ControlPlane, api: KubeApi, helm: Helm, role: str
) -> None:
    helm.install("kafscale", {})
    served(plane)
    rbac = "rbac.authorization.k8s.io"
    api.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "people"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": f"somebody-{role}"}],
        }
    )
    somebody = KubeApi(plane.user(f"somebody-{role}"), api.namespace)
    try:
        wait_until(lambda: _may(somebody, CLUSTER, api.namespace), "the role has the new kinds")
        if role == "edit":
            wait_until(lambda: _creates(somebody, cluster("c")), "it may change them, too")
            somebody.scale(CLUSTER, "c", 2)
            assert api.get(CLUSTER, "c")["spec"]["brokers"]["replicas"] == 2
        else:
            with pytest.raises(ApiRefusalError, match="cannot create resource"):
                somebody.create(cluster("c"))
    finally:
        somebody.close()


def _creates(api: KubeApi, manifest: dict[str, Any]) -> bool:
    try:
        api.create(manifest)
    except ApiRefusalError as refusal:
        assert refusal.reason == "Forbidden", refusal
        return False
    return True


def _refuses_to_give_what_it_has_not(operator: KubeApi) -> None:
    """It makes roles and bindings, and none by which anybody could come to more."""
    rbac = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "more"}}
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
    with pytest.raises(ApiRefusalError, match="attempting to grant RBAC permissions not currently held"):
        operator.create(role | {"rules": rules})
    cluster_binding = Kind(f"{rbac}/v1", "ClusterRoleBinding")
    reader = {"apiGroup": rbac, "kind": "ClusterRole", "name": api_names.NODE_READER_ROLE}
    other = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "more"}}
    with pytest.raises(ApiRefusalError, match="cannot create resource"):
        operator.create(other | {"roleRef": reader})
    with pytest.raises(ApiRefusalError, match="cannot delete resource"):
        operator.delete(cluster_binding, api_names.NODE_READER_ROLE)
    with pytest.raises(ApiRefusalError, match="cannot get resource"):
        operator.get(cluster_binding, "cluster-admin")
    assert operator.get(cluster_binding, api_names.NODE_READER_ROLE)["roleRef"]["name"] == reader["name"]


def _may(api: KubeApi, kind: Kind, namespace: str) -> bool:
    try:
        api.select(kind, namespace)
    except ApiRefusalError as refusal:
        assert refusal.reason == "Forbidden", refusal
        return False
    return True


def direct(**brokers: Any) -> dict[str, Any]:
    """Brokers without an operator, of which several fit on a node."""
    spec = {**DIRECT["spec"], "brokers": brokers}
    return {
        "crds": {"install": False},
        "operator": {"enabled": False},
        "directCluster": {**DIRECT, "spec": spec},
    }


def test_brokers_without_an_operator_come_up_change_and_go(
    api: KubeApi, kubelet: Kubelet, helm: Helm
) -> None:
    said = helm.install("demo", direct(replicas=3, external={"hostTemplate": "kafka-{id}.example.com"}))
    assert f"bootstrap.servers=orders-bootstrap.{api.namespace}.svc:9092" in said
    assert "orders-bootstrap-external" in said
    _are_ready(api, 3)
    assert {each["metadata"]["name"] for each in api.select(SERVICE)} >= {
        "orders-bootstrap",
        "orders-brokers",
        "orders-broker-2-external",
    }
    before = _pods(api)
    changed = direct(replicas=2)
    changed["directCluster"]["spec"] = changed["directCluster"]["spec"] | {"config": {"flushIntervalMs": 100}}
    helm.install("demo", changed)
    wait_until(lambda: len(_pods(api)) == 2 and not _pods(api) & before, "both were replaced")
    _are_ready(api, 2)
    assert api.get(CONFIG_MAP, "orders-broker-settings")["data"]["KAFSCALE_FLUSH_INTERVAL_MS"] == "100"
    assert api.find(SERVICE, "orders-broker-0-external") is None
    helm.run("uninstall", "demo", "--wait")
    wait_until(lambda: not api.select(POD), "no pod is left")


BROKERS = "app.kubernetes.io/component=broker"


def test_autoscaler_takes_over_replicas_without_conflict(api: KubeApi, kubelet: Kubelet, helm: Helm) -> None:
    helm.install("demo", direct(replicas=3))
    _are_ready(api, 3)
    helm.install("demo", direct(autoscaling={"minReplicas": 2, "maxReplicas": 5}))
    assert api.get(STATEFUL_SET, "orders-broker")["spec"]["replicas"] == 3
    assert api.get(AUTOSCALER, "orders-broker")["spec"]["maxReplicas"] == 5
    api.scale(STATEFUL_SET, "orders-broker", 4)
    helm.install("demo", direct(autoscaling={"minReplicas": 2, "maxReplicas": 6}))
    assert api.get(STATEFUL_SET, "orders-broker")["spec"]["replicas"] == 4
    helm.install("demo", direct(replicas=0))
    assert api.find(AUTOSCALER, "orders-broker") is None
    wait_until(lambda: not api.select(POD, labels=BROKERS), "they are stopped")
    # An autoscaler leaves alone what stands at nothing.
    helm.install("demo", direct(autoscaling={"minReplicas": 2, "maxReplicas": 5}))
    _are_ready(api, 2)


def test_protocol_changes_in_steps_with_a_second_listener(api: KubeApi, kubelet: Kubelet, helm: Helm) -> None:
    transition = {"transition": {"protocol": "SASL_SSL"}}
    steps: list[tuple[dict[str, Any], list[int], str]] = [
        ({"protocol": "PLAINTEXT"}, [9092], "PLAINTEXT:PLAINTEXT"),
        ({"protocol": "PLAINTEXT", **transition}, [9092, 9096], "PLAINTEXT:PLAINTEXT,TRANSITION:SASL_SSL"),
        ({"protocol": "SASL_SSL", **transition}, [9092, 9096], "INTERNAL:SASL_SSL,TRANSITION:SASL_SSL"),
        ({"protocol": "SASL_SSL"}, [9092], "INTERNAL:SASL_SSL"),
    ]
    secrets = []
    for security, ports, protocols in steps:
        values = direct(replicas=2)
        values["directCluster"]["spec"] |= {"security": security}
        helm.install("demo", values)
        _are_ready(api, 2)
        bootstrap = api.get(SERVICE, "orders-bootstrap")["spec"]["ports"]
        assert [each["port"] for each in bootstrap] == ports
        settings = api.get(CONFIG_MAP, "orders-broker-settings")["data"]
        assert settings["KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP"] == protocols
        secrets.append([api.find(SECRET, f"orders-{name}") for name in ("admin", "ca", "broker-tls")])
    assert secrets[0] == [None, None, None]
    data = [[each["data"] for each in found if each is not None] for found in secrets[1:]]
    assert data[0] == data[1] == data[2]
    assert len(data[0]) == 3


def test_any_values_can_follow_any_other_and_roll_back(api: KubeApi, helm: Helm) -> None:
    sets = [
        direct(replicas=3),
        # One at least: with three the autoscaler may raise a single broker to three in the moment between
        # Helm's change of the StatefulSet and its removal of the autoscaler, which comes last.
        direct(autoscaling={"minReplicas": 1, "maxReplicas": 5}, rack={}),
        direct(replicas=1, external={"type": "NodePort", "port": 9443}, networkPolicy={}),
        direct(replicas=0, external={"hostTemplate": "k-{id}.example.com"}, serviceAccountName="default"),
    ]
    seen = {}
    for revision, values in enumerate([*sets, *reversed(sets)], start=1):
        helm.install("demo", values)
        seen[revision] = _made(api)
    external = ("orders-bootstrap-external", "orders-broker-0-external")
    assert seen[1] == (3, False, {})
    assert seen[2] == (3, True, {})
    assert seen[3] == (1, False, dict.fromkeys(external, ("NodePort", [9443])))
    assert seen[4] == (0, False, {external[0]: ("LoadBalancer", [9094])})
    for revision in (3, 6, 2, 4, 8):
        helm.run("rollback", "demo", str(revision))
        assert _made(api) == seen[revision], revision


def _made(api: KubeApi) -> tuple[int, bool, dict[str, tuple[str, list[int]]]]:
    """How many brokers, whether an autoscaler decides, and what leads to them from outside."""
    outside = {
        each["metadata"]["name"]: (each["spec"]["type"], [port["port"] for port in each["spec"]["ports"]])
        for each in api.select(SERVICE)
        if each["spec"]["type"] != "ClusterIP"
    }
    replicas = api.get(STATEFUL_SET, "orders-broker")["spec"]["replicas"]
    return replicas, api.find(AUTOSCALER, "orders-broker") is not None, outside


def _are_ready(api: KubeApi, count: int) -> None:
    def ready() -> bool:
        status = api.get(STATEFUL_SET, "orders-broker")["status"]
        return bool(
            status.get("readyReplicas", 0) == status.get("updatedReplicas", 0) == status["replicas"] == count
        )

    wait_until(ready, f"{count} brokers are ready")


def _pods(api: KubeApi) -> set[str]:
    """The brokers', without that of the Job which writes the administrator's password."""
    return {each["metadata"]["uid"] for each in api.select(POD, labels=BROKERS)}


def test_unready_brokers_do_not_block_node_drains(api: KubeApi, kubelet: Kubelet, helm: Helm) -> None:
    helm.install("demo", direct(replicas=2))
    _are_ready(api, 2)
    kubelet.hold_end("orders-broker-0")
    wait_until(lambda: _evicted(api, "orders-broker-0"), "one may be away")
    with pytest.raises(ApiRefusalError, match="disruption budget"):
        api.evict("orders-broker-1")
    kubelet.decide("orders-broker-1", Fate.UNREADY)
    wait_until(lambda: _evicted(api, "orders-broker-1"), "one that serves nobody may go")
    kubelet.let_end("orders-broker-0")


def _evicted(api: KubeApi, name: str) -> bool:
    try:
        api.evict(name)
    except ApiRefusalError as refusal:
        assert refusal.reason == "TooManyRequests", refusal
        return False
    return True
