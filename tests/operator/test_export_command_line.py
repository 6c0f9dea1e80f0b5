"""The command line that an export's pod gets is one that its program takes, and means what the resource says."""

from typing import Any

import click
import pytest

from kafscale.commands.export_command import export as python_export
from kafscale.operator.cluster_spec import cluster_spec
from kafscale.operator.exports.command_line import arguments, command
from kafscale.operator.exports.spec import OWN_OPTIONS, Engine, ExportSpec, export_spec
from kafscale.operator.exports.workload import workload
from spark_jobs.export import main as spark_export
from tests.support.kube_exports import SPEC

COMMANDS: dict[Engine, click.Command] = {Engine.SPARK: spark_export, Engine.PYTHON: python_export}
REST = {"type": "rest", "properties": {"uri": "https://catalog/", "scope": "all"}, "warehouse": "w"}
SQL = {"type": "sql", "warehouse": "s3://lake/tables", "name": "l2"}
CLUSTER: dict[str, Any] = {
    "brokers": {"replicas": 1},
    "s3": {"bucket": "records", "credentialsSecret": "keys"},
    "etcd": {"managed": {}},
    "config": {"flushIntervalMs": 100},
}


def spec_of(**parts: Any) -> ExportSpec:
    found = {key: value for key, value in {**SPEC, **parts}.items() if value is not None}
    return export_spec("e", "ns", found)


def options_of(export: ExportSpec) -> dict[str, Any]:
    """The program's view of it, by click's names of the options."""
    unescaped = [one.replace("$$", "$") for one in arguments(export)]
    context = COMMANDS[export.engine].make_context("export", unescaped)
    return context.params


SPECS: dict[str, dict[str, Any]] = {
    "spark": {"topics": {"names": ["a", "b"], "pattern": r"shop\..*"}, "driverMemory": "4g"},
    "spark by config": {
        "topics": {"byConfig": True},
        "table": {"name": "k.{topic}", "namespaces": ["a", "b"]},
    },
    "spark in full": {
        "schedule": None,
        "continuous": {},
        "table": {"name": "k.t", "deadLetters": "k.d", "partitionBy": "days(timestamp)", "sortBy": "key"},
        "valueFormat": "json",
        "keyFormat": "string",
        "startingOffsets": "latest",
        "onExpired": "record",
        "transactions": "atomic",
        "args": ["--compact", "--max-batch-size=1GiB"],
    },
    "python": {"engine": "Python", "catalog": REST},
    "python by config": {
        "engine": "Python",
        "catalog": SQL,
        "topics": {"byConfig": True, "pattern": "a.*"},
        "schedule": None,
        "continuous": {"interval": "2m"},
        "table": {"namespaces": ["x"], "partitionBy": "days(timestamp)"},
    },
    "python with an odd name": {"engine": "Python", "catalog": SQL, "topics": {"names": ["--help"]}},
}


@pytest.mark.parametrize("name", SPECS)
def test_the_program_takes_its_command_line(name: str) -> None:
    options_of(spec_of(**SPECS[name]))


def test_spark_gets_what_the_resource_says() -> None:
    found = options_of(spec_of(**SPECS["spark in full"]))
    assert (found["topics"], found["table"], found["dead_letter_table"]) == (
        ("orders",),
        "lake.k.t",
        "lake.k.d",
    )
    assert (found["catalogs"], found["continuous"], found["interval"]) == (("lake=jdbc",), True, 60.0)
    assert found["catalog_properties"] == ("lake.uri=jdbc:postgresql://db/iceberg",)
    assert (found["value_format"], found["key_format"], found["on_expired"]) == ("json", "string", "record")
    assert (found["partition_by"], found["sort_by"], found["compact"]) == ("days(timestamp)", "key", True)
    assert found["metrics_addr"].port == 9094
    assert found["transactions"] == "atomic"
    assert found["max_batch_size"] == 2**30


def test_without_spark_it_gets_the_same() -> None:
    found = options_of(spec_of(**SPECS["python"]))
    assert (found["topic"], found["table"], found["to"]) == ("orders", "kafka.orders", "https://catalog/")
    assert found["catalog_properties"] == ("warehouse=w", "scope=all")
    found = options_of(spec_of(**SPECS["python by config"]))
    assert (found["topic"], found["by_config"], found["namespaces"]) == (None, True, ("x",))
    assert (found["table"], found["to"], found["catalog"]) == ("kafka.{topic}", "s3://lake/tables", "l2")
    assert (found["topic_pattern"].pattern, found["interval"]) == ("a.*", 120.0)
    assert options_of(spec_of(**SPECS["python with an odd name"]))["topic"] == "--help"


def test_own_options_are_options_of_the_programs() -> None:
    known = {
        option
        for program in COMMANDS.values()
        for parameter in program.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert known >= OWN_OPTIONS
    used = {
        one.partition("=")[0]
        for parts in SPECS.values()
        for one in arguments(spec_of(**{**parts, "args": []}))
        if one.startswith("--")
    }
    assert used <= OWN_OPTIONS | {"--conf", "--", "--help"}


def test_secrets_are_in_no_argument() -> None:
    secret = {"property": "jdbc.password", "secret": "db", "key": "password"}
    export = spec_of(catalog={"type": "jdbc", "secretProperties": [secret]}, envSecrets=["more"])
    assert "--catalog-property=lake.jdbc.password=env:KAFSCALE_EXPORT_CATALOG_0" in arguments(export)
    cluster = cluster_spec("c", "ns", CLUSTER)
    owner = {"metadata": {"name": "e", "uid": "u"}}
    job = workload(export, cluster, owner)
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one for one in container["env"]}
    assert variables["KAFSCALE_EXPORT_CATALOG_0"]["valueFrom"]["secretKeyRef"] == {
        "name": "db",
        "key": "password",
    }
    assert variables["KAFSCALE_S3_SECRET_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "keys"
    assert container["envFrom"] == [{"secretRef": {"name": "more"}}]


def test_the_pod_has_the_stores_of_the_cluster_and_no_more() -> None:
    export = spec_of(env=[{"name": "KAFSCALE_S3_REGION", "value": "mine"}], s3CredentialsSecret="own")
    job = workload(export, cluster_spec("c", "ns", CLUSTER), {"metadata": {"name": "e", "uid": "u"}})
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = [one["name"] for one in container["env"]]
    assert len(variables) == len(set(variables))
    assert {"KAFSCALE_S3_BUCKET", "KAFSCALE_ETCD_ENDPOINTS", "KAFSCALE_ETCD_CERT"} <= set(variables)
    assert "KAFSCALE_FLUSH_INTERVAL_MS" not in variables
    assert {"name": "etcd-tls", "secret": {"secretName": "c-etcd-clients"}} in pod["volumes"]
    assert pod["automountServiceAccountToken"] is False
    labels = job["metadata"]["labels"]
    assert (labels["app.kubernetes.io/instance"], labels["kafscale.io/export"]) == ("c", "e")


@pytest.mark.parametrize("engine", Engine)
def test_text_that_kubernetes_would_expand_is_escaped(engine: Engine) -> None:
    catalog = {"type": "rest", "properties": {"uri": "https://$(HOME)/"}}
    export = spec_of(engine=engine.value, catalog=catalog)
    assert not any("$(" in one.replace("$$", "") for one in arguments(export))
    assert command(export)[:2] == ["python", "-m"]
