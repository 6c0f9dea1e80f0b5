"""The environment of the tests here: what Kubernetes decides is real, and pods get as far as a test says."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.manifests import SHARES, deployment, job, share, shares_definition, stateful_set
from tests.support.k8s_install import HELM, KUBERNETES_VERSION, helm_missing
from tests.support.kube_api import (
    AUTOSCALER,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    JOB,
    NAMESPACE,
    POD,
    STATEFUL_SET,
    ApiRefusalError,
    Kind,
    KubeApi,
    Manifest,
)
from tests.support.kube_control_plane import ControlPlane
from tests.support.kube_definitions import defined
from tests.support.kube_namespaces import new_namespace
from tests.support.kubelet import ZONES, Fate, Kubelet
from tests.support.left_sockets import IGNORED_WHEN_A_SERVER_ENDS
from tests.support.process import clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until


def is_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def ready_pods(api: KubeApi) -> list[str]:
    return [pod["metadata"]["name"] for pod in api.select(POD) if is_ready(pod)]


def images(api: KubeApi) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in api.select(POD)}


def test_the_version_is_the_pinned_one(plane: ControlPlane) -> None:
    assert plane.admin.request("GET", "/version")["gitVersion"] == KUBERNETES_VERSION


def test_a_definitions_schema_refuses_what_it_does_not_allow(plane: ControlPlane, api: KubeApi) -> None:
    with defined(plane.admin, shares_definition()):
        made = api.create(share("good", parts=3))
        assert made["spec"] == {"parts": 3, "colour": "red"}, "the schema's default is filled in"
        with pytest.raises(ApiRefusalError) as refused:
            api.create(share("bad", parts=0))
        assert refused.value.reason == "Invalid"
        assert "spec.parts" in refused.value.message
        assert "greater than or equal to 1" in refused.value.message
        with pytest.raises(ApiRefusalError, match="parts never shrink"):
            api.patch(SHARES, "good", {"spec": {"parts": 2}})


def test_a_definition_may_come_again(plane: ControlPlane, api: KubeApi) -> None:
    for _ in range(2):
        with defined(plane.admin, shares_definition()):
            held = share("held", parts=3)
            held["metadata"]["finalizers"] = ["tests.kafscale.io/never"]
            api.create(held)
        assert not plane.admin.serves(SHARES)


def test_a_stateful_set_comes_up_one_pod_after_the_other(api: KubeApi, kubelet: Kubelet) -> None:
    kubelet.decide("web-1", Fate.UNREADY)
    api.create(stateful_set("web", replicas=3))
    wait_until(lambda: "web-1" in images(api) and ready_pods(api) == ["web-0"], "the second pod is not ready")
    assert "web-2" not in images(api)
    kubelet.decide("web-1", Fate.READY)
    wait_until(lambda: ready_pods(api) == ["web-0", "web-1", "web-2"], "all are ready")
    wait_until(lambda: api.get(STATEFUL_SET, "web")["status"].get("readyReplicas") == 3, "the set knows it")
    nodes = {pod["spec"]["nodeName"] for pod in api.select(POD)}
    assert nodes == set(ZONES)
    addresses = {pod["status"]["podIP"] for pod in api.select(POD)}
    assert len(addresses) == 3


def test_stateful_set_rolls_one_ready_pod_at_a_time(api: KubeApi, kubelet: Kubelet) -> None:
    api.create(stateful_set("web", replicas=3, image="app:1"))
    wait_until(lambda: len(ready_pods(api)) == 3, "all are ready")
    old = {"web-0": "app:1", "web-1": "app:1", "web-2": "app:1"}

    kubelet.hold_end("web-2")
    api.apply(stateful_set("web", replicas=3, image="app:2"))
    wait_until(lambda: api.get(POD, "web-2")["metadata"].get("deletionTimestamp"), "web-2 is terminating")
    assert images(api) == old, "its end is held: the next does not come"
    kubelet.decide("web-2", Fate.UNREADY)
    kubelet.let_end("web-2")
    wait_until(lambda: images(api) == old | {"web-2": "app:2"}, "web-2 has the new image")
    assert ready_pods(api) == ["web-0", "web-1"]
    kubelet.hold_end("web-1")
    kubelet.decide("web-2", Fate.READY)
    wait_until(lambda: api.get(POD, "web-1")["metadata"].get("deletionTimestamp"), "web-1 is terminating")
    assert is_ready(api.get(POD, "web-2"))
    assert not api.get(POD, "web-0")["metadata"].get("deletionTimestamp")
    kubelet.let_end("web-1")
    new = dict.fromkeys(old, "app:2")
    wait_until(lambda: images(api) == new and len(ready_pods(api)) == 3, "all have the new image")
    wait_until(lambda: _has_rolled(api, "web", 3), "the set knows it")


def test_pod_deleted_during_its_status_write_ends(
    api: KubeApi, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: the write's answer was newer than the event of the deletion, which was ignored, so the pod stayed."""
    patch = KubeApi.patch
    deleted: list[str] = []

    def delete_first(self: KubeApi, kind: Kind, name: str, *rest: Any) -> Manifest:
        if kind == POD and not deleted:
            deleted.append(api.get(POD, name)["metadata"]["uid"])
            api.delete(POD, name)
        return patch(self, kind, name, *rest)

    monkeypatch.setattr(KubeApi, "patch", delete_first)
    api.create(stateful_set("web", replicas=1))

    def is_replaced() -> bool:
        found = [pod["metadata"]["uid"] for pod in api.select(POD) if is_ready(pod)]
        return len(found) == len(deleted) == 1 and found != deleted

    wait_until(is_replaced, "it is gone, and the next one is ready")


def test_a_pod_that_crashed_is_restarted(api: KubeApi, kubelet: Kubelet) -> None:
    api.create(stateful_set("web", replicas=1))
    wait_until(lambda: ready_pods(api) == ["web-0"], "it is ready")
    uid = api.get(POD, "web-0")["metadata"]["uid"]
    kubelet.decide("web-0", Fate.CRASHING)
    state = wait_until(lambda: _container(api, "web-0")["state"].get("waiting"), "it waits for a restart")
    assert state["reason"] == "CrashLoopBackOff"
    assert ready_pods(api) == []
    kubelet.decide("web-0", Fate.READY)
    wait_until(lambda: ready_pods(api) == ["web-0"], "it is ready again")
    assert _container(api, "web-0")["restartCount"] == 1
    assert _container(api, "web-0")["lastState"]["terminated"]["exitCode"] == 1
    assert api.get(POD, "web-0")["metadata"]["uid"] == uid


def test_a_status_that_is_right_is_not_written_again(api: KubeApi, kubelet: Kubelet) -> None:
    api.create(stateful_set("web", replicas=1))
    wait_until(lambda: ready_pods(api) == ["web-0"], "it is ready")
    before = api.get(POD, "web-0")["metadata"]["resourceVersion"]
    for _ in range(3):
        kubelet.decide("*", Fate.READY)
    assert api.get(POD, "web-0")["metadata"]["resourceVersion"] == before


def test_pod_security_refuses_what_the_standard_forbids(plane: ControlPlane) -> None:
    with new_namespace(plane.admin, pod_security="restricted") as restricted:
        pod = stateful_set("web", replicas=1)["spec"]["template"]
        good = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}, "spec": pod["spec"]}
        restricted.create(good)
        bad_spec = {
            "containers": [{"name": "app", "image": "app:1", "securityContext": {"privileged": True}}]
        }
        bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": bad_spec}
        with pytest.raises(ApiRefusalError, match='violates PodSecurity "restricted:latest"') as refused:
            restricted.create(bad)
        assert refused.value.reason == "Forbidden"
        assert "runAsNonRoot" in refused.value.message


def test_an_account_may_do_what_its_role_says_and_nothing_else(plane: ControlPlane, api: KubeApi) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    api.create(account)
    reader = KubeApi(plane.service_account(api.namespace, "reader"), api.namespace)
    try:
        with pytest.raises(ApiRefusalError, match=f"system:serviceaccount:{api.namespace}:reader") as refused:
            reader.select(CONFIG_MAP)
        assert refused.value.reason == "Forbidden"
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
        rbac = "rbac.authorization.k8s.io"
        name = {"metadata": {"name": "reader"}}
        api.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "rules": rules} | name)
        binding = {
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": api.namespace}],
        }
        api.create({"apiVersion": f"{rbac}/v1", "kind": "RoleBinding"} | binding | name)
        wait_until(lambda: _may_list(reader), "the role counts")
        with pytest.raises(ApiRefusalError, match='cannot list resource "pods"'):
            reader.select(POD)
    finally:
        reader.close()


def test_a_user_without_a_role_may_do_nothing(plane: ControlPlane, api: KubeApi) -> None:
    somebody = KubeApi(plane.user("somebody", "people"), api.namespace)
    try:
        with pytest.raises(ApiRefusalError, match='User "somebody" cannot list resource "pods"'):
            somebody.select(POD)
    finally:
        somebody.close()


def test_autoscaler_is_validated_and_reports_missing_metrics(api: KubeApi, kubelet: Kubelet) -> None:
    api.create(stateful_set("web", replicas=1))
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3}
    spec["metrics"] = [{"type": "Resource", "resource": cpu}]
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
    }
    with pytest.raises(ApiRefusalError, match=r"spec\.maxReplicas") as refused:
        api.create(autoscaler | {"spec": spec | {"minReplicas": 4}})
    assert refused.value.reason == "Invalid"
    api.create(autoscaler | {"spec": spec})
    conditions = wait_until(
        lambda: {
            each["type"]: each["status"]
            for each in api.get(AUTOSCALER, "web")["status"].get("conditions", ())
            if each["type"] == "ScalingActive"
        },
        "the controller has looked at it",
        60,
    )
    assert conditions == {"ScalingActive": "False"}


def test_a_budget_refuses_to_evict_one_pod_too_many(api: KubeApi, kubelet: Kubelet) -> None:
    api.create(stateful_set("web", replicas=3))
    wait_until(lambda: len(ready_pods(api)) == 3, "all are ready")
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
    api.create(budget | {"spec": spec})
    wait_until(
        lambda: api.get(DISRUPTION_BUDGET, "web").get("status", {}).get("disruptionsAllowed") == 1,
        "the controller has counted the pods",
    )
    kubelet.hold_end("web-0")
    api.evict("web-0")
    with pytest.raises(ApiRefusalError, match="disruption budget") as refused:
        api.evict("web-1")
    assert refused.value.reason == "TooManyRequests"


def test_a_service_leads_to_the_pods_that_are_ready(api: KubeApi, kubelet: Kubelet) -> None:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 9092}], "clusterIP": "None"}
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec})
    api.create(deployment("web", replicas=2))
    wait_until(lambda: len(ready_pods(api)) == 2, "both are ready")
    wait_until(lambda: len(_addresses(api, "web")) == 2, "both are in the endpoints")
    kubelet.decide(ready_pods(api)[0], Fate.UNREADY)
    wait_until(lambda: len(_addresses(api, "web")) == 1, "one is left")


def test_what_an_object_owned_goes_with_it(api: KubeApi) -> None:
    owner = api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = {"name": "owned", "ownerReferences": [reference]}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned})
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})
    api.delete(CONFIG_MAP, "owner")
    wait_until(lambda: api.find(CONFIG_MAP, "owned") is None, "the owned one is collected")
    assert api.find(CONFIG_MAP, "other")


def test_a_job_completes_or_fails_with_its_pods(api: KubeApi, kubelet: Kubelet) -> None:
    kubelet.decide("bad-*", Fate.FAILED)
    api.create(job("good"))
    api.create(job("bad"))
    wait_until(lambda: _condition(api, "good", "Complete"), "the job is complete")
    wait_until(lambda: _condition(api, "bad", "Failed"), "the other one failed")
    assert api.get(JOB, "good")["status"]["succeeded"] == 1


def test_a_deployments_pods_wait_for_their_image(api: KubeApi, kubelet: Kubelet) -> None:
    kubelet.decide("web-*", Fate.STUCK)
    api.create(deployment("web", replicas=2))
    wait_until(lambda: len(api.select(POD)) == 2, "there are pods")
    wait_until(
        lambda: all(pod["status"].get("containerStatuses") for pod in api.select(POD)), "they are stuck"
    )
    kubelet.decide("web-*", None)
    wait_until(lambda: api.get(DEPLOYMENT, "web")["status"].get("availableReplicas") == 2, "they run")


@IGNORED_WHEN_A_SERVER_ENDS
def test_the_api_server_comes_back_with_all_that_it_had(
    plane: ControlPlane, api: KubeApi, kubelet: Kubelet
) -> None:
    api.create(stateful_set("web", replicas=1))
    wait_until(lambda: ready_pods(api) == ["web-0"], "it is ready")
    plane.server.kill9()
    plane.server.start()
    assert ready_pods(api) == ["web-0"]
    api.scale(STATEFUL_SET, "web", 2)
    wait_until(
        lambda: ready_pods(api) == ["web-0", "web-1"], "controllers and kubelet have come back too", 60
    )


def test_a_program_comes_as_whom_its_kubeconfig_says(
    plane: ControlPlane, api: KubeApi, tmp_path: Path
) -> None:
    missing = helm_missing()
    if missing:
        pytest.skip(missing)

    def helm_list(kubeconfig: Path) -> subprocess.CompletedProcess[str]:
        own = {
            "KUBECONFIG": str(kubeconfig),
            "HELM_CACHE_HOME": str(tmp_path),
            "HELM_CONFIG_HOME": str(tmp_path),
        }
        command = [str(HELM), "list"]  # in the namespace of the file
        environment = clean_environment() | own
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SEC
        )

    admin = plane.write_kubeconfig(plane.admin.access, f"{api.namespace}-admin", api.namespace)
    listed = helm_list(admin)
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.startswith("NAME")
    account = plane.service_account(api.namespace, "default")
    refused = helm_list(plane.write_kubeconfig(account, f"{api.namespace}-default", api.namespace))
    assert f'"system:serviceaccount:{api.namespace}:default" cannot list resource "secrets"' in refused.stderr


def test_a_namespace_goes_whatever_holds_its_content(plane: ControlPlane) -> None:
    with defined(plane.admin, shares_definition()):
        with new_namespace(plane.admin) as api:
            held = share("held", parts=1)
            held["metadata"]["finalizers"] = ["tests.kafscale.io/never"]
            api.create(held)
            api.create(stateful_set("web", replicas=1))
            wait_until(lambda: images(api), "there is a pod, and nobody runs it")
        wait_until(lambda: plane.admin.find(NAMESPACE, api.namespace) is None, "the namespace is gone")


def _container(api: KubeApi, pod: str) -> Manifest:
    container: Manifest = api.get(POD, pod)["status"]["containerStatuses"][0]
    return container


def _has_rolled(api: KubeApi, name: str, replicas: int) -> bool:
    status: dict[str, int] = api.get(STATEFUL_SET, name)["status"]
    return status.get("updatedReplicas") == replicas and status["currentRevision"] == status["updateRevision"]


def _addresses(api: KubeApi, service: str) -> set[str]:
    slices = api.select(ENDPOINT_SLICE, labels=f"kubernetes.io/service-name={service}")
    endpoints = [each for found in slices for each in found["endpoints"] or ()]
    return {each["addresses"][0] for each in endpoints if each["conditions"]["ready"]}


def _condition(api: KubeApi, name: str, kind: str) -> bool:
    conditions = api.get(JOB, name)["status"].get("conditions", ())
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _may_list(api: KubeApi) -> bool:
    try:
        api.select(CONFIG_MAP)
    except ApiRefusalError:
        return False
    return True
