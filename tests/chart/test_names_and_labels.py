"""Names that Kubernetes takes, whatever the release is called; labels that stand once and select what they should."""

from pathlib import Path

import pytest
import yaml

from tests.chart.values_sets import DIRECT, EVERYTHING
from tests.support.helm import CHART, SAFE_LOADER, HelmError, rendered, run_helm, values_file
from tests.support.k8s_install import helm_missing

pytestmark = pytest.mark.skipif(helm_missing() is not None, reason=str(helm_missing()))

LONGEST = "r" * 53
BROKERS = {"operator": {"enabled": False}, "crds": {"install": False}}


def _doubled(node: yaml.Node) -> list[str]:
    """Keys that stand twice, which kustomize and other strict readers refuse."""
    if isinstance(node, yaml.SequenceNode):
        return [key for each in node.value for key in _doubled(each)]
    if not isinstance(node, yaml.MappingNode):
        return []
    keys = [key.value for key, _ in node.value]
    found = [key for key in set(keys) if keys.count(key) > 1]
    return [*found, *(key for _, value in node.value for key in _doubled(value))]


def test_a_label_for_all_and_for_one_kind_stands_once(tmp_path: Path) -> None:
    release = {"labels": {"release": "prometheus"}}
    values = {
        **EVERYTHING,
        "commonLabels": {"release": "all"},
        "monitoring": {
            "serviceMonitor": {"enabled": True, **release},
            "rules": {"enabled": True, **release},
            "dashboards": {"enabled": True, **release},
        },
    }
    path = str(values_file(tmp_path, values))
    text = run_helm("template", "demo", str(CHART), "--values", path, home=tmp_path)
    kinds = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert [
        key for document in yaml.compose_all(text, Loader=SAFE_LOADER) for key in _doubled(document)
    ] == []
    for each in yaml.load_all(text, Loader=SAFE_LOADER):
        if each is not None:
            is_its_own = each["kind"] in kinds or "-dashboard-" in each["metadata"]["name"]
            assert each["metadata"]["labels"]["release"] == ("prometheus" if is_its_own else "all")


@pytest.mark.parametrize("label", ["app.kubernetes.io/name", "app.kubernetes.io/instance", "helm.sh/chart"])
def test_labels_that_select_pods_are_not_to_be_replaced(tmp_path: Path, label: str) -> None:
    labels = {label: "mine"}
    for values in (
        {"commonLabels": labels},
        {"monitoring": {"serviceMonitor": {"labels": labels}}},
        {"monitoring": {"dashboards": {"labels": labels}}},
    ):
        with pytest.raises(HelmError, match=label):
            rendered(tmp_path, values)


@pytest.mark.parametrize("release", ["1st", "my.release"])
def test_release_name_unfit_for_a_service_is_refused_first(tmp_path: Path, release: str) -> None:
    with pytest.raises(HelmError, match="set fullnameOverride"):
        rendered(tmp_path, release=release)
    assert rendered(tmp_path, {"fullnameOverride": "first"}, release=release)
    unnamed = {**BROKERS, "directCluster": {**DIRECT, "name": ""}}
    with pytest.raises(HelmError, match=r"set directCluster\.name"):
        rendered(tmp_path, unnamed, release=release)
    assert rendered(tmp_path, {**BROKERS, "directCluster": DIRECT}, release=release)


def test_names_fit_whatever_the_release_is_called(tmp_path: Path) -> None:
    brokers = {**DIRECT["spec"]["brokers"], "replicas": 1000}
    direct = {**DIRECT, "name": "", "spec": {**DIRECT["spec"], "brokers": brokers}}
    for more in ({}, {"nameOverride": "n" * 40}, {"fullnameOverride": "f" * 40}):
        for each in rendered(tmp_path, {**EVERYTHING, "directCluster": direct, **more}, release=LONGEST):
            name = each["metadata"]["name"]
            # A pod's label has the StatefulSet's name, a dash and ten characters; a job's name has eleven more.
            most = {"StatefulSet": 52, "CronJob": 52, "Service": 63}.get(each["kind"], 253)
            assert len(name) <= most, name
            assert all(len(value) <= 63 for value in each["metadata"]["labels"].values())
