"""Rules and dashboards ask for series that there are, by labels that these have."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafscale.ops.metric_export import render
from kafscale.ops.metrics import Metrics
from tests.chart.expression_checks import problems
from tests.chart.known_metrics import ETCD, KNOWN, PROCESS, series
from tests.chart.promql import groupings, selectors
from tests.chart.test_alerts import ALERTS
from tests.support.etcd_server import etcd_server


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_asks_for_what_there_is(alert: str) -> None:
    assert list(problems(ALERTS[alert]["expr"])) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("kafscale_brokerz > 0", "there is no metric kafscale_brokerz"),
        ("kafscale_merged_segments_total > 0", "kafscale_merged_segments_total only grows"),
        ("rate(kafscale_brokers[5m]) > 0", "kafscale_brokers is a gauge"),
        ('rate(kafscale_flushes_total{result="failed"}[5m])', "kafscale_flushes_total has no label result"),
        ('rate(kafscale_flushes_total{outcome=~"failed|lost"}[5m])', "never has outcome=lost"),
        ('rate(kafscale_request_duration_seconds_bucket{api="Produce"}[5m])', "never has api=Produce"),
        ("sum by (topics) (rate(kafscale_topic_bytes_in_total[5m]))", "has the label topics"),
        ("max(kafscale_brokers) > on () (1 + max by (shard) (kafscale_groups))", "has the label shard"),
    ],
)
def test_what_is_wrong_is_found(expression: str, problem: str) -> None:
    (found,) = problems(expression)
    assert problem in found


def test_an_expression_is_taken_apart() -> None:
    left = 'max(rate(a_total{x=~"y|z"}[5m] offset 1h))'
    expression = f"{left} > on (b) group_left (c) -avg without (d) (deriv(e[1h:1m]))"
    first, second = selectors(expression)
    assert (first.metric, first.function, second.metric, second.function) == ("a_total", "rate", "e", "deriv")
    assert [(one.label, one.op, one.value) for one in first.matchers] == [("x", "=~", "y|z")]
    (grouping,) = groupings(expression)
    assert grouping.labels == ("d",)
    assert [one.metric for one in grouping.selectors] == ["e"]
    with pytest.raises(ValueError, match="unclosed"):
        selectors("sum by (")


def test_a_broker_exports_what_every_process_has() -> None:
    page = render(Metrics(broker_id=1, version="0")).decode()
    there = {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}
    assert {family.name for family in PROCESS} <= there


def test_etcd_exports_what_is_asked_of_it(tmp_path: Path) -> None:
    with etcd_server(tmp_path) as etcd:
        page = etcd.metrics_page()
    there = {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}
    assert set(series(ETCD)) <= there
    assert set(series(ETCD)) <= set(KNOWN)
