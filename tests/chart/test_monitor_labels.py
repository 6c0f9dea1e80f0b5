"""The labels that rules and dashboards go by are those that the chart's monitors give to what the operator makes."""

from pathlib import Path
from typing import Any

import pytest

from kafscale.operator import api_names
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.manifests import broker_services, etcd_set
from kafscale.operator.schema import cluster_schema
from tests.chart.test_alerts import TARGETS
from tests.chart.test_kubernetes_page import _with_defaults
from tests.support.helm import of_kind, only, rendered
from tests.support.k8s_install import helm_missing

PREFIX = "__meta_kubernetes_service_label_"


def _cluster() -> ClusterSpec:
    external = {"type": "LoadBalancer"}
    spec = {
        "brokers": {"replicas": 3, "external": external},
        "s3": {"bucket": "records"},
        "etcd": {"managed": {}},
    }
    return cluster_spec("prod", "streams", _with_defaults(spec, cluster_schema.spec()))


def _services(component: str) -> list[dict[str, Any]]:
    cluster = _cluster()
    if component == "etcd":
        return [etcd_set.etcd_service(cluster)]
    return [*broker_services.within(cluster), *broker_services.outside(cluster, 3)]


@pytest.fixture
def monitors(tmp_path: Path) -> list[dict[str, Any]]:
    if (missing := helm_missing()) is not None:
        pytest.skip(missing)
    values = {"monitoring": {"serviceMonitor": {"enabled": True}}}
    return of_kind(rendered(tmp_path, values), "ServiceMonitor")


def _given(monitor: dict[str, Any], service: dict[str, Any]) -> dict[str, str]:
    """The labels of a series that is scraped of the service, but for its pod."""
    labels = service["metadata"]["labels"]
    found = {PREFIX + name.translate(str.maketrans("./-", "___")): value for name, value in labels.items()}
    (endpoint,) = monitor["spec"]["endpoints"]
    given = {"job": labels[monitor["spec"]["jobLabel"]], "namespace": service["metadata"]["namespace"]}
    for rule in endpoint["relabelings"]:
        (source,) = rule["sourceLabels"]
        given[rule["targetLabel"]] = found[source]
    return given


@pytest.mark.parametrize(("component", "target"), [("broker", "broker0"), ("etcd", "etcd0")])
def test_series_have_the_labels_that_rules_go_by(
    monitors: list[dict[str, Any]], component: str, target: str
) -> None:
    monitor = only(monitors, "ServiceMonitor", f"demo-kafscale-{component}")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    port = monitor["spec"]["endpoints"][0]["port"]
    scraped = [
        service
        for service in _services(component)
        if wanted.items() <= service["metadata"]["labels"].items()
        and port in {one["name"] for one in service["spec"]["ports"]}
    ]
    (service,) = scraped  # by two of them every pod would be scraped twice
    expected = {name: value for name, value in TARGETS[target].items() if name != "pod"}
    assert _given(monitor, service) == expected


def test_operator_series_keep_their_cluster_label(tmp_path: Path, monitors: list[dict[str, Any]]) -> None:
    monitor = only(monitors, "ServiceMonitor", "demo-kafscale-operator")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    wanted = monitor["spec"]["selector"]["matchLabels"]
    services = [
        service
        for service in of_kind(rendered(tmp_path), "Service")
        if wanted.items() <= service["metadata"]["labels"].items()
    ]
    (service,) = services
    assert endpoint["port"] in {one["name"] for one in service["spec"]["ports"]}
    given = _given(monitor, service)
    assert (given["job"], given["component"]) == ("kafscale", "operator")
    assert api_names.NAME in service["metadata"]["labels"]
