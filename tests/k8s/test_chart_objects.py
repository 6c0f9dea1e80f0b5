"""Every object of the chart is what a real API server takes, to the last field; its pods are restricted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.values_sets import SETS
from tests.support.helm import Manifest, of_kind, rendered
from tests.support.k8s_install import helm_missing
from tests.support.kube_api import ApiRefusalError, Kind, KubeApi
from tests.support.kube_control_plane import ControlPlane
from tests.support.kube_definitions import defined
from tests.support.kube_namespaces import new_namespace

pytestmark = pytest.mark.skipif(helm_missing() is not None, reason=str(helm_missing()))

MONITORING = "monitoring.coreos.com"
POD_TEMPLATES = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def monitoring_definition(kind: str) -> Manifest:
    """A custom kind of the Prometheus operator, of which any content is taken."""
    plural = f"{kind.lower()}s"
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{MONITORING}"},
        "spec": {"group": MONITORING, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module", autouse=True)
def monitoring(plane: ControlPlane) -> Iterator[None]:
    """ServiceMonitor, PodMonitor and PrometheusRule exist."""
    definitions = [monitoring_definition(kind) for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule")]
    with defined(plane.admin, *definitions):
        yield


def try_out(api: KubeApi, manifest: Manifest) -> Manifest:
    """The server's version of it: nothing is stored, unknown and doubled fields are refused."""
    kind = Kind(manifest["apiVersion"], manifest["kind"])
    path = api.path(kind, None, manifest["metadata"].get("namespace"))
    return api.request("POST", path, body=manifest, query={"dryRun": "All", "fieldValidation": "Strict"})


def refusals(api: KubeApi, manifests: list[Manifest]) -> dict[str, str]:
    """By object, why the server does not take it."""
    found = {}
    for manifest in manifests:
        try:
            try_out(api, manifest)
        except ApiRefusalError as refusal:
            found[f"{manifest['kind']} {manifest['metadata']['name']}"] = refusal.message
    return found


def pod_of(manifest: Manifest) -> Manifest:
    """A pod of that workload."""
    template: Any = manifest
    for name in POD_TEMPLATES[manifest["kind"]]:
        template = template[name]
    metadata = {**template["metadata"], "name": manifest["metadata"]["name"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_every_object_is_taken(api: KubeApi, tmp_path: Path, values: dict[str, Any]) -> None:
    watched = values.get("operator", {}).get("watchNamespaces")
    if watched:
        values = {**values, "operator": {**values["operator"], "watchNamespaces": [api.namespace]}}
    manifests = rendered(tmp_path, values, namespace=api.namespace)
    assert refusals(api, manifests) == {}


def test_an_object_with_an_unknown_field_is_refused(api: KubeApi, tmp_path: Path) -> None:
    (deployment,) = of_kind(rendered(tmp_path, namespace=api.namespace), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    assert list(refusals(api, [deployment])) == [f"Deployment {deployment['metadata']['name']}"]


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_pods_are_restricted(plane: ControlPlane, tmp_path: Path, values: dict[str, Any]) -> None:
    with new_namespace(plane.admin, pod_security="restricted") as restricted:
        manifests = rendered(tmp_path, values, namespace=restricted.namespace)
        workloads = [each for each in manifests if each["kind"] in POD_TEMPLATES]
        assert workloads
        for workload in workloads:
            pod = pod_of(workload)
            name = pod["spec"]["serviceAccountName"]
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
            restricted.apply(account)  # several may share one
            made = try_out(restricted, pod)
            assert made["spec"]["securityContext"]["runAsNonRoot"] is True
            for container in made["spec"]["containers"]:
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
