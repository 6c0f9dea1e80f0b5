"""helm's notes after an installation are right for what was installed, and can be typed as they stand."""

import re
import shlex
import subprocess
from typing import Any

import pytest
import yaml

from tests.k8s.test_chart_install import CLUSTER, direct, served
from tests.support.chart_install import Helm
from tests.support.helm import Manifest
from tests.support.k8s_install import helm_missing
from tests.support.kube_api import CRON_JOB, DEPLOYMENT, SERVICE, STATEFUL_SET, KubeApi
from tests.support.kube_control_plane import ControlPlane
from tests.support.kube_namespaces import new_namespace
from tests.support.waiting import PATIENCE_SEC

pytestmark = pytest.mark.skipif(helm_missing() is not None, reason=str(helm_missing()))

KINDS = {
    "deployment": DEPLOYMENT,
    "statefulset": STATEFUL_SET,
    "service": SERVICE,
    "cronjob": CRON_JOB,
}
NAMED = re.compile(r"\b(deployment|statefulset|service|cronjob)[/ ]([a-z0-9-]+)")


def named_are_there(api: KubeApi, said: str) -> list[tuple[str, str]]:
    """Every object that a command names, by kind and name; each exists."""
    commands = [line for line in said.splitlines() if line.startswith("    kubectl ")]
    for command in commands:
        assert shlex.split(command)[2] == api.namespace
    found = [pair for command in commands for pair in NAMED.findall(command)]
    for kind, name in found:
        assert api.find(KINDS[kind], name), (kind, name)
    return found


def typed(said: str) -> tuple[list[str], list[Manifest]]:
    """The shell's input to kubectl where the command with the manifest is pasted: arguments, manifests."""
    start = said.index("kubectl --namespace", said.index("A cluster is made of"))
    script = 'kubectl() { printf "%s " "$@" >&2; cat; }\n' + said[start:]
    # What comes after the manifest are commands of their own.
    script = script.partition("\nEND\n")[0] + "\nEND\nexit 0\n"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE_SEC
    )
    return done.stderr.split(), list(yaml.safe_load_all(done.stdout))


def test_the_operator_s_first_cluster_can_be_pasted(plane: ControlPlane, api: KubeApi, helm: Helm) -> None:
    said = helm.install("kafscale", {})
    assert named_are_there(api, said) == [("deployment", "kafscale-operator")]
    arguments, (manifest,) = typed(said)
    assert arguments == ["--namespace", api.namespace, "apply", "--filename", "-"]
    served(plane)
    manifest["spec"]["s3"] = {"bucket": "records"}
    api.create(manifest)
    assert api.get(CLUSTER, "orders")["spec"]["brokers"]["replicas"] == 3
    assert f"orders-bootstrap.{api.namespace}.svc:9092" in said


def test_clusters_are_made_where_the_operator_looks(plane: ControlPlane, api: KubeApi, helm: Helm) -> None:
    with new_namespace(plane.admin) as other:
        said = helm.install("kafscale", {"operator": {"watchNamespaces": [other.namespace]}})
        assert typed(said)[0][:2] == ["--namespace", other.namespace]
        assert f"--namespace {other.namespace} get kafscaleclusters" in said
        assert f"orders-bootstrap.{other.namespace}.svc:9092" in said
        assert f"--namespace {api.namespace} rollout status deployment/kafscale-operator" in said
        helm.run("uninstall", "kafscale", "--wait")


def test_operator_without_definitions_names_their_source(helm: Helm) -> None:
    assert "crds.install is false" in helm.install("kafscale", {"crds": {"install": False}})


def outside(helm: Helm, **external: Any) -> str:
    """The notes about clients outside, on one line."""
    said = helm.install("demo", direct(replicas=1, external=external))
    assert "KafscaleCluster" not in said, "brokers without an operator need no definitions"
    return " ".join(said.partition("Clients outside begin at")[2].split())


def test_the_port_for_clients_outside_leads_to_the_brokers(api: KubeApi, helm: Helm) -> None:
    balanced = outside(helm)
    assert balanced.startswith("port 9094 of the address of kubectl")
    named = outside(helm, bootstrapHost="k.example.com", hostTemplate="k-{id}.example.com")
    assert named.startswith("bootstrap.servers=k.example.com:9094 which is to lead to the address of kubectl")
    assert "broker N at k-N.example.com, which is to lead to the address of its own service" in named
    assert named_are_there(api, helm.run("get", "notes", "demo")) == [
        ("statefulset", "orders-broker"),
        ("service", "orders-bootstrap-external"),
    ]
    # There the port of the service is not the one that clients come to.
    for host in ({}, {"bootstrapHost": "k.example.com"}):
        ported = outside(helm, type="NodePort", **host)
        assert "9094" not in ported
        assert "and the node port of" in ported


def test_an_autoscaler_that_knows_no_load_is_named(helm: Helm) -> None:
    scaled = direct(autoscaling={"maxReplicas": 3})
    assert "resources.requests.cpu is missing" in helm.install("demo", scaled)
    scaled["directCluster"]["spec"]["brokers"]["resources"] = {"requests": {"cpu": "1"}}
    assert "requests.cpu" not in helm.install("demo", scaled)


def test_a_release_of_the_export_alone_says_how_to_run_it(api: KubeApi, helm: Helm) -> None:
    values = {
        "crds": {"install": False},
        "operator": {"enabled": False},
        "lakeExport": {"enabled": True, "cluster": "orders", "args": ["--topic=t", "--table=l.d.t"]},
    }
    said = helm.install("lake", values)
    assert named_are_there(api, said) == [("cronjob", "lake-kafscale-export")]
    told = said.partition("NOTES:")[2]
    assert "KafscaleCluster" not in told
    assert "runs nothing" not in told
    del values["lakeExport"]
    assert "this release runs nothing" in helm.install("lake", values)
