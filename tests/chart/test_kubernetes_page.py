"""Manifests and commands of docs/kubernetes.md are legal."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kafscale.commands.cli import main
from kafscale.operator.backups.reconciler import CONDITION as BACKED_UP
from kafscale.operator.cluster_spec import cluster_spec
from kafscale.operator.clusters import status as cluster_status
from kafscale.operator.etcd import conditions as etcd_conditions
from kafscale.operator.schema import cluster_schema, topic_schema
from kafscale.operator.schema.definitions import CLUSTER_PHASES
from kafscale.operator.topics.spec import topic_spec
from kafscale.settings.broker import unknown_settings
from scripts.chart_values import documented_values

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/kubernetes.md").read_text()
DOCUMENTS: list[dict[str, Any]] = [
    document
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    for document in yaml.safe_load_all(block)
]
PATCHES = re.findall(r"--patch '([^']+)'", PAGE)


def _kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in DOCUMENTS if document["kind"] == kind]


def _with_defaults(value: Any, schema: dict[str, Any], path: str = "spec") -> Any:
    """As the API server would have it. A field that the schema does not have, it would drop without a word."""
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    fields = schema["properties"]
    assert set(value) <= set(fields), path
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    return defaults | {
        name: _with_defaults(inner, fields[name], f"{path}.{name}") for name, inner in value.items()
    }


def test_clusters_and_topics_are_legal() -> None:
    assert len(_kind("KafscaleCluster")) >= 3
    for document in _kind("KafscaleCluster"):
        name, spec = document["metadata"]["name"], _with_defaults(document["spec"], cluster_schema.spec())
        assert cluster_spec(name, "streams", spec).name == name
    (topic,) = _kind("KafscaleTopic")
    spec = _with_defaults(topic["spec"], topic_schema.spec())
    assert topic_spec("payments", spec, 1).partition_count == 12


def test_patches_change_fields_that_there_are() -> None:
    patches = [json.loads(patch) for patch in PATCHES]
    assert sum("spec" in patch for patch in patches) >= 3
    for patch in patches:
        assert patch.keys() <= {"spec", "metadata"}
        _with_defaults(patch.get("spec", {}), cluster_schema.spec())
        assert patch.get("metadata", {}).keys() <= {"finalizers"}


def test_rebuild_runs_restricted_with_existing_options() -> None:
    (job,) = _kind("Job")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *arguments = container["args"]
    recover = main.commands[command]
    with click.Context(main) as above:
        assert recover.make_context(command, list(arguments), parent=above).params["backup"] == "newest"
        assert recover.make_context(command, [*arguments, "--apply"], parent=above).params["apply"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment and unknown_settings(environment) == []
    assert container["envFrom"] == [{"configMapRef": {"name": "orders-broker-settings"}}]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_values_that_are_set_are_the_charts() -> None:
    known = [value.path for value in documented_values()]
    named = re.findall(r"--set (\S+?)=", PAGE)
    assert len(named) > 5
    for name in named:
        plain = name.replace('"', "").replace("\\", "")
        assert any(plain == path or plain.startswith(f"{path}.") for path in known), name


def test_commands_are_written_as_a_shell_takes_them() -> None:
    text = PAGE.replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if re.match(r" {4,}(kubectl|helm|docker) ", line)]
    assert len(lines) > 10
    commands = [shlex.split(line, comments=True) for line in lines]
    # In whatever namespace the reader's kubectl is.
    assert [words for words in commands if words[0] == "kubectl" and not _says_where(words)] == []


def _says_where(words: list[str]) -> bool:
    return "--namespace" in words or "namespace" in words


def test_the_same_helm_is_asked_for_everywhere() -> None:
    chart = (ROOT / "deploy/helm/kafscale/README.md").read_text()
    assert len(set(re.findall(r"Helm (\d\.\d+)", PAGE + chart))) == 1


@pytest.mark.parametrize("phase", CLUSTER_PHASES)
def test_every_phase_is_explained(phase: str) -> None:
    assert f"| `{phase}` |" in PAGE


def test_conditions_are_explained() -> None:
    types = (
        cluster_status.ACCEPTED,
        cluster_status.PROGRESSING,
        cluster_status.READY,
        cluster_status.AUTOSCALING,
        BACKED_UP,
        etcd_conditions.HEALTHY,
        etcd_conditions.SPACE_HEALTHY,
        etcd_conditions.AS_SPECIFIED,
    )
    (told,) = re.findall(r"^Conditions: .*$", PAGE, flags=re.MULTILINE)
    assert [word for word in types if f"`{word}`" not in told] == []
