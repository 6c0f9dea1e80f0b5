"""The CronJob example is what Kubernetes takes, runs restricted, and calls the export with options that it has."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kafscale.lake.table_names import tables_of
from kafscale.settings.broker import load_settings, unknown_settings
from spark_jobs import catalogs, cli_options, export

FOLDER = Path(__file__).resolve().parents[2] / "deploy/spark"
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def manifests() -> dict[str, Manifest]:
    documents = yaml.safe_load_all((FOLDER / "cronjob.yaml").read_text())
    return {document["kind"]: document for document in documents}


@pytest.fixture(scope="module")
def pod(manifests: dict[str, Manifest]) -> Manifest:
    spec: Manifest = manifests["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: Manifest) -> Manifest:
    (only,) = pod["containers"]
    assert isinstance(only, dict)
    return only


@pytest.fixture(scope="module")
def environment(manifests: dict[str, Manifest], container: Manifest) -> dict[str, str]:
    """The arguments and variables of the process."""
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        if "configMapRef" in source:
            assert source["configMapRef"]["name"] == manifests["ConfigMap"]["metadata"]["name"]
            found |= manifests["ConfigMap"]["data"]
        else:
            assert source["secretRef"]["name"] == manifests["Secret"]["metadata"]["name"]
            found |= manifests["Secret"]["stringData"]
    return found | {one["name"]: one["value"] for one in container["env"]}


def test_runs_do_not_overlap_and_do_not_pile_up(manifests: dict[str, Manifest]) -> None:
    spec = manifests["CronJob"]["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["successfulJobsHistoryLimit"] and spec["failedJobsHistoryLimit"]
    job = spec["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] > 0
    assert job["ttlSecondsAfterFinished"] > 0


def test_the_pod_is_what_the_restricted_profile_asks_for(
    manifests: dict[str, Manifest], pod: Manifest, container: Manifest
) -> None:
    assert manifests["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"requests", "limits"} <= container["resources"].keys()


def test_names_in_it_fit_together(manifests: dict[str, Manifest], pod: Manifest, container: Manifest) -> None:
    namespace = manifests["Namespace"]["metadata"]["name"]
    namespaced = [one for kind, one in manifests.items() if kind != "Namespace"]
    assert {one["metadata"]["namespace"] for one in namespaced} == {namespace}
    assert pod["serviceAccountName"] == manifests["ServiceAccount"]["metadata"]["name"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}


def test_its_environment_has_settings_that_are_legal_together(environment: dict[str, str]) -> None:
    assert unknown_settings(environment) == []
    settings = load_settings(environment)
    assert settings.etcd_endpoints is not None
    assert settings.s3_bucket is not None


def test_the_export_takes_its_options(container: Manifest, environment: dict[str, str]) -> None:
    context = export.main.make_context("export", list(container["args"]))
    parameters = context.params
    tables = tables_of(["shop.orders"], parameters["table"], parameters["dead_letter_table"])
    assert tables["shop.orders"].rows == "lake.kafka.shop_orders"
    resolved = catalogs.resolve_catalogs(
        catalogs.CatalogOptions(
            warehouse=parameters["warehouse"],
            catalogs=parameters["catalogs"],
            properties=parameters["catalog_properties"],
        ),
        [tables["shop.orders"].rows],
        load_settings(environment),
        environment,
    )
    assert [one.name for one in resolved] == ["lake"]
    assert resolved[0].properties["jdbc.password"] == environment["CATALOG_PASSWORD"]
    assert resolved[0].properties["io-impl"] == catalogs.S3_FILE_IO
    assert parameters["topic_pattern"].fullmatch("shop.orders")
    assert not parameters["topic_pattern"].fullmatch("shopping")


def test_spark_submit_gets_pairs_and_script_of_the_image(container: Manifest) -> None:
    submit, *options, script = container["command"]
    assert submit == "spark-submit"
    for name, value in zip(options[::2], options[1::2], strict=True):
        assert name.startswith("--")
        if name == "--conf":
            cli_options.conf_pair(value)
    dockerfile = (FOLDER / "Dockerfile").read_text()
    packages = script.removesuffix("/spark_jobs/export.py")
    assert packages != script
    assert f"{packages}/pyspark/jars" in dockerfile
    python = packages.split("/")[-2].removeprefix("python")
    assert f"python:{python}-" in dockerfile
