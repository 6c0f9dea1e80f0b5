"""The rendered chart: names, rights, monitors, the export; and that its values say what they are."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafscale.operator.cluster_spec import cluster_spec
from kafscale.operator.exports.spec import export_spec
from kafscale.operator.exports.workload import workload
from kafscale.operator.operator_command import operator as operator_command
from kafscale.operator.schema.definitions import all_definitions
from kafscale.settings import broker as settings
from scripts.chart_files import written_files
from scripts.chart_values import documented_values
from scripts.project import ROOT
from spark_jobs import export
from tests.chart.values_sets import DIRECT, EVERYTHING, EXPORT, SETS
from tests.support.helm import CHART, HelmError, Manifest, of_kind, only, rendered, run_helm, values_file
from tests.support.k8s_install import helm_missing
from tests.support.kube_exports import SPEC as EXPORT_SPEC

pytestmark = pytest.mark.skipif(helm_missing() is not None, reason=str(helm_missing()))


@pytest.mark.parametrize("path", written_files())
def test_generated_files_are_current(path: str) -> None:
    assert (ROOT / path).read_text() == written_files()[path](), "run `make docs`"


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_lint_has_nothing_to_say(tmp_path: Path, values: dict[str, Any]) -> None:
    said = run_helm(
        "lint", "--strict", str(CHART), "--values", str(values_file(tmp_path, values)), home=tmp_path
    )
    assert "[WARNING]" not in said


def test_the_version_is_the_project_s() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'\nversion = "{chart["appVersion"]}"\n' in (ROOT / "pyproject.toml").read_text()


def test_an_older_kubernetes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HelmError, match="incompatible with Kubernetes"):
        rendered(tmp_path, arguments=("--kube-version", "1.29.9"))


def test_the_definitions_are_the_operator_s(tmp_path: Path) -> None:
    found = of_kind(rendered(tmp_path), "CustomResourceDefinition")
    for definition in found:
        assert definition["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        del definition["metadata"]["labels"]
    assert found == json.loads(json.dumps(all_definitions()))


def test_definitions_are_left_out_or_given_up_when_asked(tmp_path: Path) -> None:
    without = rendered(tmp_path, {"crds": {"install": False}})
    assert not of_kind(without, "CustomResourceDefinition")
    for definition in of_kind(rendered(tmp_path, {"crds": {"keep": False}}), "CustomResourceDefinition"):
        assert "annotations" not in definition["metadata"]


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_every_object_is_labelled_and_no_two_are_the_same(tmp_path: Path, values: dict[str, Any]) -> None:
    manifests = rendered(tmp_path, values)
    for each in manifests:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "kafscale"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert values.get("commonLabels", {}).items() <= labels.items()
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in manifests
    ]
    assert sorted(set(map(str, names))) == sorted(map(str, names))


def test_commands_and_options_of_the_operator_exist(tmp_path: Path) -> None:
    deployment = only(rendered(tmp_path, EVERYTHING), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [operator_command.name]
    given = {one["name"]: one.get("value") for one in container["env"]}
    known = {option.envvar for option in operator_command.params if getattr(option, "envvar", None)}
    ours = {name: value for name, value in given.items() if name.startswith("KAFSCALE_")}
    assert ours.keys() <= known
    assert ours["KAFSCALE_OPERATOR_IMAGE"] == container["image"] == "kafscale:0.1.0"


def test_the_operator_watches_the_configured_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = only(rendered(tmp_path, {"operator": {"watchNamespaces": ["a", "b"]}}), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one["value"])
    parameters = operator_command.make_context("operator", []).params
    assert parameters["namespaces"] == ("a", "b")
    assert parameters["lease_name"] == "demo-kafscale-operator"
    assert parameters["metrics_addr"] == ":8080"


def test_the_operator_s_rights_follow_what_it_watches(tmp_path: Path) -> None:
    wide = rendered(tmp_path, {"operator": {"watchAllNamespaces": True}})
    cluster_role = only(wide, "ClusterRole", "demo-kafscale-operator:streams")
    (election,) = of_kind(wide, "Role")
    assert {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "patch"]} in cluster_role["rules"]
    assert election["rules"][1]["resourceNames"] == ["demo-kafscale-operator"]

    own = rendered(tmp_path, {"operator": {"rbac": {"secretNames": ["keys"]}}})
    assert {role["metadata"]["namespace"] for role in of_kind(own, "Role")} == {"streams"}
    (secrets, _) = [
        rule for role in of_kind(own, "Role") for rule in role["rules"] if rule["resources"] == ["secrets"]
    ]
    assert secrets == {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["keys"],
        "verbs": ["get", "patch"],
    }

    narrow = rendered(tmp_path, {"operator": {"watchNamespaces": ["a", "b"]}})
    cluster_role = only(narrow, "ClusterRole", "demo-kafscale-operator:streams")
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in cluster_role["rules"]] == [
        (["clusterrolebindings"], ["kafscale-node-reader"], ["get", "update"]),
        (["clusterroles"], ["kafscale-node-reader"], ["bind"]),
    ]
    roles = {role["metadata"]["namespace"] for role in of_kind(narrow, "Role")}
    assert roles == {"streams", "a", "b"}


def test_no_right_is_for_everything(tmp_path: Path) -> None:
    for values in SETS.values():
        manifests = rendered(tmp_path, values)
        for role in (*of_kind(manifests, "Role"), *of_kind(manifests, "ClusterRole")):
            for rule in role["rules"]:
                assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}


def test_accounts_and_rights_may_be_made_outside_the_chart(tmp_path: Path) -> None:
    manifests = rendered(
        tmp_path,
        {
            "operator": {"serviceAccount": {"create": False, "name": "mine"}, "rbac": {"create": False}},
            "crds": {"install": False},
        },
    )
    assert only(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    assert {each["kind"] for each in manifests} == {
        "Deployment",
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
    }


def test_an_image_is_named_by_its_digest_where_there_is_one(tmp_path: Path) -> None:
    digest = "sha256:" + "a" * 64
    deployment = only(rendered(tmp_path, {"image": {"tag": "x", "digest": digest}}), "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"kafscale@{digest}"


def test_monitors_find_the_services_and_name_their_targets(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, EVERYTHING)
    for monitor in of_kind(manifests, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (endpoint,) = monitor["spec"]["endpoints"]
        services = [
            service["metadata"]["name"]
            for service in of_kind(manifests, "Service")
            if wanted <= service["metadata"]["labels"].items()
            and any(port["name"] == endpoint["port"] for port in service["spec"]["ports"])
        ]
        component = monitor["metadata"]["labels"]["app.kubernetes.io/component"]
        expected = {"operator": ["demo-kafscale-operator"], "broker": ["orders-brokers"], "etcd": []}
        assert services == expected[component]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        assert monitor["spec"]["jobLabel"] == "app.kubernetes.io/name", "the alerts' job is kafscale"


def test_a_monitor_finds_the_pods_of_continuous_exports(tmp_path: Path) -> None:
    export = export_spec("e", "streams", {**EXPORT_SPEC, "schedule": None, "continuous": {}})
    spec = {"brokers": {"replicas": 1}, "s3": {"bucket": "b"}, "etcd": {"managed": {}}}
    cluster = cluster_spec("c", "streams", spec)
    made = workload(export, cluster, {"metadata": {"name": "e", "uid": "u"}})["spec"]["template"]
    (container,) = made["spec"]["containers"]
    monitor = only(rendered(tmp_path, EVERYTHING), "PodMonitor", "demo-kafscale-export")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in container["ports"]]


def test_monitors_look_where_clusters_are(tmp_path: Path) -> None:
    def where(**operator: Any) -> dict[str, Any]:
        manifests = rendered(
            tmp_path, {"operator": operator, "monitoring": {"serviceMonitor": {"enabled": True}}}
        )
        selector: dict[str, Any] = only(manifests, "ServiceMonitor", "demo-kafscale-broker")["spec"][
            "namespaceSelector"
        ]
        return selector

    assert where() == {"matchNames": ["streams"]}
    assert where(watchAllNamespaces=True) == {"any": True}
    assert where(watchNamespaces=["a"]) == {"matchNames": ["a", "streams"]}
    assert where(enabled=False) == {"matchNames": ["streams"]}


def export_job(tmp_path: Path, **parts: Any) -> Manifest:
    values = {"directCluster": DIRECT, "lakeExport": {**EXPORT, **parts}}
    return only(rendered(tmp_path, values), "CronJob", "demo-kafscale-export")


def test_the_export_is_the_one_of_the_example(tmp_path: Path) -> None:
    """But for how it is started, and what the chart knows of the cluster."""
    documents = yaml.safe_load_all((ROOT / "deploy/spark/cronjob.yaml").read_text())
    example = next(one for one in documents if one["kind"] == "CronJob")["spec"]
    made = export_job(tmp_path)["spec"]
    assert {**made, "jobTemplate": None} == {**example, "jobTemplate": None, "suspend": False}
    job, example_job = made["jobTemplate"]["spec"], example["jobTemplate"]["spec"]
    assert {**job, "template": None} == {**example_job, "template": None}
    pod, example_pod = job["template"]["spec"], example_job["template"]["spec"]
    for name in ("securityContext", "restartPolicy", "terminationGracePeriodSeconds"):
        assert pod[name] == example_pod[name], name
    container, example_container = pod["containers"][0], example_pod["containers"][0]
    for name in ("resources", "securityContext"):
        assert container[name] == example_container[name], name
    assert container["command"] == ["python", "-m", "spark_jobs.export"]
    assert pod["volumes"][0] == example_pod["volumes"][0]


def test_the_export_reads_the_cluster_s_settings_and_secrets(tmp_path: Path) -> None:
    pod = export_job(tmp_path)["spec"]["jobTemplate"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    assert container["envFrom"] == [
        {"configMapRef": {"name": "orders-broker-settings"}},
        {"secretRef": {"name": "catalog-password"}},
    ]
    secrets = {
        one["valueFrom"]["secretKeyRef"]["name"]
        for one in container["env"]
        if "secretKeyRef" in one.get("valueFrom", {})
    }
    assert secrets == {"bucket-keys", "etcd-user"}
    assert pod["spec"]["volumes"][1]["secret"]["secretName"] == "etcd-tls"
    # By which a managed etcd's network policy lets it in.
    assert pod["metadata"]["labels"]["app.kubernetes.io/instance"] == "orders"
    parameters = export.main.make_context("export", list(container["args"])).params
    assert "spark.driver.memory=2g" in parameters["conf"]


def test_another_cluster_s_export_gets_nothing_of_this_one(tmp_path: Path) -> None:
    pod = export_job(tmp_path, cluster="other")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["envFrom"][0] == {"configMapRef": {"name": "other-broker-settings"}}
    assert not any("valueFrom" in one for one in container["env"])
    assert [volume["name"] for volume in pod["volumes"]] == ["scratch"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lakeExport": {"enabled": True, "args": ["--topic", "t"]}}, "lakeExport.cluster is missing"),
        ({"lakeExport": {"enabled": True, "cluster": "c"}}, "lakeExport.args is missing"),
        ({"operator": {"replica": 3}}, "replica"),
        ({"operator": {"replicas": "3"}}, "/operator/replicas"),
        ({"operator": {"logLevel": "loud"}}, "/operator/logLevel"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"operators": {}}, "operators"),
    ],
)
def test_values_that_are_not_legal_are_refused_by_name(
    tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(HelmError) as refused:
        rendered(tmp_path, values)
    assert words in str(refused.value)


def test_every_value_has_its_documentation() -> None:
    values = documented_values()
    assert {one.path.partition(".")[0] for one in values} == set(
        yaml.safe_load((CHART / "values.yaml").read_text())
    )
    assert [one.path for one in values if not one.documentation.endswith((".", ")"))] == []


def test_the_settings_of_direct_brokers_are_legal_together(tmp_path: Path) -> None:
    manifests = rendered(tmp_path, EVERYTHING)
    environment = only(manifests, "ConfigMap", "orders-broker-settings")["data"]
    assert settings.unknown_settings(environment) == []
    secrets = {
        "KAFSCALE_S3_ACCESS_KEY": "a",
        "KAFSCALE_S3_SECRET_KEY": "b",
        "KAFSCALE_ETCD_USERNAME": "c",
        "KAFSCALE_ETCD_PASSWORD": "d",
    }
    found = settings.load_settings(environment | secrets)
    assert (found.flush_interval_ms, found.cache_size_bytes) == (250, 2 * 2**30)


def test_the_example_of_brokers_without_an_operator(tmp_path: Path) -> None:
    values = yaml.safe_load((CHART / "examples/values-brokers-only.yaml").read_text())
    kinds = {each["kind"] for each in rendered(tmp_path, values, release="orders")}
    assert {"StatefulSet", "ConfigMap", "PodDisruptionBudget"} <= kinds
    assert not kinds & {"Role", "ClusterRole", "CustomResourceDefinition", "Deployment"}


def test_the_example_of_an_export(tmp_path: Path) -> None:
    values = yaml.safe_load((CHART / "examples/values-lake-export.yaml").read_text())
    manifests = rendered(tmp_path, values, release="orders-export")
    assert {each["kind"] for each in manifests} == {"CronJob", "ServiceAccount"}
    job = only(manifests, "CronJob", "orders-export-kafscale-export")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    parameters = export.main.make_context("export", list(container["args"])).params
    assert parameters["topic_pattern"].fullmatch("shop.orders")
