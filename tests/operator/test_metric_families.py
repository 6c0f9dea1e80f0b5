"""The operator exports what its table says, and nothing else of its own."""

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafscale.operator.backups.metrics import BackupMetrics
from kafscale.operator.etcd.metrics import EtcdMetrics
from kafscale.operator.exports.metrics import ExportLags
from kafscale.operator.metric_families import FAMILIES
from kafscale.operator.operator_metrics import OperatorMetrics
from kafscale.operator.resource_metrics import (
    EXPORT_RESOURCES,
    TOPIC_RESOURCES,
    USER_RESOURCES,
    ResourceMetrics,
)
from kafscale.ops.metric_families import MetricType

WHEN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    operator, backups = OperatorMetrics(registry), BackupMetrics(registry)
    EtcdMetrics(registry)
    ResourceMetrics(registry, TOPIC_RESOURCES)
    ResourceMetrics(registry, USER_RESOURCES)
    ResourceMetrics(registry, EXPORT_RESOURCES)
    ExportLags(registry)
    operator.add_part("clusters")
    operator.show_cluster("streams", "orders", ready=True)
    backups.show("streams", "orders", WHEN, 1000)
    return registry


def test_every_family_of_the_table_is_exported_and_no_other() -> None:
    page = generate_latest(_registry()).decode()
    exported = {
        (family.name, family.type)
        for family in text_string_to_metric_families(page)
        if not family.name.endswith("_created")
    }
    told = {(family.name.removesuffix("_total"), family.type.value) for family in FAMILIES}
    assert exported == told


def test_names_and_labels_follow_prometheus_conventions() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith("kafscale_")
        assert family.name.endswith("_total") == (family.type is MetricType.COUNTER)
        assert family.documentation.endswith(".")


def test_series_have_the_labels_of_the_table() -> None:
    labels = {family.name: set(family.labels) for family in FAMILIES}
    samples = [
        sample
        for family in _registry().collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    assert len(samples) >= 8
    assert all(set(sample.labels) == labels[sample.name] for sample in samples)
