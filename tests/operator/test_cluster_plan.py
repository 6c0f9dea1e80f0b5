"""The wanted objects of a cluster, and those that go."""

from typing import Any

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.clusters.owned_objects import foreign
from kafscale.operator.clusters.plan import ClusterPlan, plan_cluster, stale
from kafscale.operator.kube.kinds import AUTOSCALER, SERVICE

OWNER = {"metadata": {"name": "c", "namespace": "ns", "uid": "u1"}}
AUTOSCALED = {"autoscaling": {"minReplicas": 2, "maxReplicas": 9}}
EXTERNAL = {"replicas": 2, "external": {"hostTemplate": "kafka-{id}.example.com"}}


def cluster(brokers: dict[str, Any] | None = None, **parts: Any) -> ClusterSpec:
    spec = {
        "brokers": brokers or {"replicas": 3},
        "s3": {"bucket": "records"},
        "etcd": {"endpoints": ["http://etcd:2379"]},
        **parts,
    }
    return cluster_spec("c", "ns", spec)


def live(replicas: int, *managers: str, there: int | None = None) -> dict[str, Any]:
    fields = [{"manager": each, "fieldsV1": {"f:spec": {"f:replicas": {}}}} for each in managers]
    return {
        "metadata": {"managedFields": fields, "resourceVersion": "7"},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas if there is None else there},
    }


def names(plan: ClusterPlan, kind: str) -> list[str]:
    return sorted(name for each, name in plan.kept() if each == kind)


def test_everything_belongs_to_the_cluster() -> None:
    plan = plan_cluster(cluster(), OWNER, "kafscale:1", None)
    for each in (*plan.before, plan.broker_set, *plan.after):
        (reference,) = each["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["uid"], reference["controller"]) == (
            "KafscaleCluster",
            "u1",
            True,
        )
        assert each["metadata"]["namespace"] == "ns"


def test_settings_come_before_the_brokers_that_read_them() -> None:
    plan = plan_cluster(cluster(), OWNER, "kafscale:1", None)
    assert "ConfigMap" in {each["kind"] for each in plan.before}
    assert "ServiceAccount" in {each["kind"] for each in plan.before}
    assert plan.broker_set["spec"]["replicas"] == 3


def test_the_image_is_the_clusters_own_or_the_operators() -> None:
    def image(found: ClusterSpec) -> str:
        manifest = plan_cluster(found, OWNER, "kafscale:1", None).broker_set
        return str(manifest["spec"]["template"]["spec"]["containers"][0]["image"])

    assert image(cluster()) == "kafscale:1"
    assert image(cluster(image="mine:2")) == "mine:2"


def test_a_number_with_another_owner_is_named_by_that_owner_only() -> None:
    plan = plan_cluster(cluster(), OWNER, "kafscale:1", live(5, api_names.SCALE_FIELD_MANAGER))
    assert "replicas" not in plan.broker_set["spec"]
    assert plan.scale is not None
    assert plan.scale["spec"] == {"replicas": 3}
    assert "resourceVersion" not in plan.broker_set["metadata"]


def test_unowned_replica_count_is_written_over_seen_value_only() -> None:
    plan = plan_cluster(cluster(), OWNER, "kafscale:1", live(5, api_names.FIELD_MANAGER))
    assert (plan.broker_set["spec"]["replicas"], plan.broker_set["metadata"]["resourceVersion"]) == (5, "7")


def test_autoscaler_is_created_once_replicas_are_unset() -> None:
    for found in (None, live(2, api_names.FIELD_MANAGER)):
        assert names(plan_cluster(cluster(AUTOSCALED), OWNER, "i", found), "HorizontalPodAutoscaler") == []
    found = live(2, api_names.FIELD_MANAGER, api_names.SCALE_FIELD_MANAGER)
    plan = plan_cluster(cluster(AUTOSCALED), OWNER, "i", found)
    assert names(plan, "HorizontalPodAutoscaler") == ["c-broker"]
    assert plan.scale is None


def test_a_broker_keeps_its_address_until_it_is_gone() -> None:
    scale = api_names.SCALE_FIELD_MANAGER
    shrinking = plan_cluster(cluster(EXTERNAL), OWNER, "i", live(2, scale, there=3))
    assert "c-broker-2-external" in names(shrinking, "Service")
    gone = plan_cluster(cluster(EXTERNAL), OWNER, "i", live(2, scale))
    assert "c-broker-2-external" not in names(gone, "Service")
    grown = plan_cluster(cluster(EXTERNAL | AUTOSCALED | {"replicas": None}), OWNER, "i", live(5, "hpa"))
    assert "c-broker-4-external" in names(grown, "Service")


def found(kind: str, name: str, uid: str = "u1", **labels: str) -> dict[str, Any]:
    owner = {"kind": "KafscaleCluster", "name": "c", "uid": uid, "controller": True}
    return {"kind": kind, "metadata": {"name": name, "ownerReferences": [owner], "labels": labels}}


def test_only_what_is_the_clusters_and_not_wanted_goes() -> None:
    plan = plan_cluster(cluster(), OWNER, "i", None)
    services = [
        found("Service", "c-bootstrap"),
        found("Service", "old"),
        found("Service", "others", uid="u2"),
    ]
    assert stale(SERVICE, services, plan, "u1") == ["old"]
    assert stale(AUTOSCALER, [found("HorizontalPodAutoscaler", "c-broker")], plan, "u1") == ["c-broker"]


def test_an_object_of_another_owner_is_not_taken_over() -> None:
    ours = {api_names.MANAGED_BY: api_names.FIELD_MANAGER, api_names.INSTANCE: "c"}
    assert foreign(found("Service", "c-bootstrap", **ours), "c", "u1") is None
    assert foreign(found("Service", "c-bootstrap", uid="gone", **ours), "c", "u1") is None, "of the last one"
    plain = {"kind": "Service", "metadata": {"name": "c-bootstrap"}}
    assert "is there already" in str(foreign(plain, "c", "u1"))
    other = found("Service", "c-bootstrap", uid="u2", **ours)
    other["metadata"]["ownerReferences"][0] |= {"kind": "Deployment", "name": "web"}
    assert foreign(other, "c", "u1") == "Service c-bootstrap belongs to Deployment web"


def test_a_broker_of_before_a_change_has_the_settings_of_before() -> None:
    """Found: by the ConfigMap one that crashed in a roll-out came back with settings that killed it."""
    before, after = (
        plan_cluster(cluster(config={"flushIntervalMs": number}), OWNER, "kafscale:1", None).broker_set
        for number in (250, 500)
    )
    (container,) = before["spec"]["template"]["spec"]["containers"]
    assert "envFrom" not in container
    assert {"name": "KAFSCALE_FLUSH_INTERVAL_MS", "value": "250"} in container["env"]
    assert before["spec"]["template"] != after["spec"]["template"]
