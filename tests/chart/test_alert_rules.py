"""The chart makes a PrometheusRule of the alerts, and lets them be changed by name."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.test_alerts import ALERTS
from tests.support.helm import HelmError, of_kind, only, rendered
from tests.support.k8s_install import helm_missing

ONE, OTHER, *_ = ALERTS


def _manifest(folder: Path, **rules: Any) -> dict[str, Any]:
    if (missing := helm_missing()) is not None:
        pytest.skip(missing)
    return only(rendered(folder, {"monitoring": {"rules": {"enabled": True, **rules}}}), "PrometheusRule")


def _rules(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in manifest["spec"]["groups"] for rule in group["rules"]}


def test_the_rules_are_those_of_the_file(tmp_path: Path) -> None:
    assert _rules(_manifest(tmp_path)) == ALERTS


def test_they_are_labelled_for_prometheus_and_for_alertmanager(tmp_path: Path) -> None:
    found = _manifest(tmp_path, labels={"release": "stack"}, alertLabels={"team": "data"})
    assert found["metadata"]["labels"]["release"] == "stack"
    severities = {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}
    assert {name: rule["labels"] for name, rule in _rules(found).items()} == {
        name: {"severity": severity, "team": "data"} for name, severity in severities.items()
    }


def test_an_alert_leads_to_its_section(tmp_path: Path) -> None:
    found = _rules(_manifest(tmp_path, runbookUrl="https://example.com/alerts.md"))
    assert found[ONE]["annotations"] == {
        **ALERTS[ONE]["annotations"],
        "runbook_url": f"https://example.com/alerts.md#{ONE.lower()}",
    }


def test_an_alert_is_left_out_or_changed_by_name(tmp_path: Path) -> None:
    override = {"expr": "up == 0", "for": "7m", "severity": "info"}
    found = _rules(_manifest(tmp_path, disabled=[ONE], overrides={OTHER: override}))
    assert set(found) == set(ALERTS) - {ONE}
    changed = ALERTS[OTHER] | {"expr": "up == 0", "for": "7m", "labels": {"severity": "info"}}
    assert found.pop(OTHER) == changed
    assert found == {name: rule for name, rule in ALERTS.items() if name in found}


def test_a_group_of_which_nothing_is_left_goes(tmp_path: Path) -> None:
    ours = [name for name in ALERTS if name.startswith("KafscaleExport")]
    groups = {group["name"] for group in _manifest(tmp_path, disabled=ours)["spec"]["groups"]}
    assert "kafscale-export" not in groups
    assert "kafscale-brokers" in groups


@pytest.mark.parametrize("rules", [{"disabled": ["KafscaleBroken"]}, {"overrides": {"KafscaleBroken": {}}}])
def test_a_name_that_no_alert_has_is_refused(tmp_path: Path, rules: dict[str, Any]) -> None:
    with pytest.raises(HelmError, match='the alert "KafscaleBroken", which does not exist'):
        _manifest(tmp_path, **rules)


def test_what_an_alert_does_not_have_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(HelmError, match="overrides"):
        _manifest(tmp_path, overrides={ONE: {"threshold": 1}})


def test_without_being_asked_the_chart_makes_none(tmp_path: Path) -> None:
    if (missing := helm_missing()) is not None:
        pytest.skip(missing)
    assert of_kind(rendered(tmp_path), "PrometheusRule") == []
