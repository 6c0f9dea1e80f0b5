"""The examples beside the chart are what the API server takes, and what the operator understands."""

from pathlib import Path

import pytest
import yaml

from kafscale.formats.features import LEGACY_LEVEL
from kafscale.operator import api_names
from kafscale.operator.cluster_spec import cluster_spec
from kafscale.operator.exports.spec import export_spec
from kafscale.operator.topics.spec import topic_spec
from kafscale.operator.users.spec import user_spec
from tests.support.helm import CHART, Manifest
from tests.support.kube_api import Kind, KubeApi

EXAMPLES = [path for path in sorted((CHART / "examples").glob("*.yaml")) if "values-" not in path.name]


def create(api: KubeApi, manifest: Manifest) -> Manifest:
    """Unknown and doubled fields are refused, as kubectl does it."""
    path = api.path(Kind(manifest["apiVersion"], manifest["kind"]), None)
    return api.request("POST", path, body=manifest, query={"fieldValidation": "Strict"})


def understood(made: Manifest) -> None:
    """By the operator, with what the API server filled in."""
    metadata = made["metadata"]
    if made["kind"] == api_names.CLUSTER:
        cluster_spec(metadata["name"], metadata["namespace"], made["spec"])
    elif made["kind"] == api_names.TOPIC:
        topic_spec(metadata["name"], made["spec"], LEGACY_LEVEL)
    elif made["kind"] == api_names.USER:
        user_spec(made)
    elif made["kind"] == api_names.EXPORT:
        export_spec(metadata["name"], metadata["namespace"], made["spec"])


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_taken_and_understood(api: KubeApi, path: Path) -> None:
    manifests = list(yaml.safe_load_all(path.read_text()))
    assert manifests
    for manifest in manifests:
        understood(create(api, manifest))


@pytest.mark.usefixtures("definitions")
def test_what_the_reference_shows_is_taken_and_understood(api: KubeApi) -> None:
    text = (CHART.parents[2] / "docs/custom-resources.md").read_text()
    shown = [block.partition("```")[0] for block in text.split("```yaml\n")[1:]]
    assert len(shown) == 4
    for block in shown:
        understood(create(api, yaml.safe_load(block)))
