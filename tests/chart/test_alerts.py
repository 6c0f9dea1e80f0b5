"""Each alert fires when it should and not otherwise, as Prometheus itself evaluates it; and is explained."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm import SAFE_LOADER
from tests.support.promtool import promtool, skip_without_promtool

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/helm/kafscale/files/alerts.yaml"
CASES: dict[str, Any] = yaml.load(
    # As it is written: to YAML 0x60 would be a number.
    Path(__file__).with_name("alert_cases.yaml").read_text(),
    yaml.BaseLoader,
)
SEVERITIES = {"critical", "warning", "info"}
SERIES = re.compile(r"(?P<name>\w+)(?:@(?P<target>\w+))?(?:\{(?P<more>.*)\})?")

_OF_A_POD = {"job": "kafscale", "namespace": "streams", "cluster": "prod"}
TARGETS: dict[str, dict[str, str]] = {
    "broker0": {**_OF_A_POD, "component": "broker", "pod": "prod-broker-0"},
    "broker1": {**_OF_A_POD, "component": "broker", "pod": "prod-broker-1"},
    "etcd0": {**_OF_A_POD, "component": "etcd", "pod": "prod-etcd-0"},
    "etcd1": {**_OF_A_POD, "component": "etcd", "pod": "prod-etcd-1"},
    "etcd2": {**_OF_A_POD, "component": "etcd", "pod": "prod-etcd-2"},
    # `namespace` and `cluster` of the clusters that it tells of.
    "operator": {**_OF_A_POD, "component": "operator", "pod": "operator-a"},
    "operator1": {**_OF_A_POD, "component": "operator", "pod": "operator-b"},
    "export": {"job": "kafscale-export", "namespace": "streams"},
}
KEPT_LABELS = {
    "namespace": ("namespace",),
    "cluster": ("namespace", "cluster"),
    "pod": ("namespace", "cluster", "pod"),
    "target": ("namespace", "cluster", "pod", "job", "component"),
}


def _groups() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.load(RULES.read_text(), Loader=SAFE_LOADER)["groups"]
    return groups


ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in _groups() for rule in group["rules"]}


def _series(written: str) -> tuple[str, dict[str, str]]:
    """The series in Prometheus' notation, and the labels of its target."""
    found = SERIES.fullmatch(written)
    assert found is not None, written
    target = TARGETS[found["target"]] if found["target"] else {}
    labels = ",".join(f'{label}="{value}"' for label, value in target.items())
    return f"{found['name']}{{{','.join(filter(None, (labels, found['more'])))}}}", target


def _test_of(alert: str, case: dict[str, Any], expected: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [
            {"series": _series(series)[0], "values": str(values)} for series, values in case["series"].items()
        ],
        "alert_rule_test": [
            {
                "eval_time": case["at"],
                "alertname": alert,
                "exp_alerts": [{"exp_labels": labels} for labels in expected],
            }
        ],
    }


def _firing(alert: str) -> list[dict[str, Any]]:
    """The cases in which it fires: `also` is another one."""
    return [case for name, case in CASES[alert].items() if name in ("fires", "also")]


def _too_early(alert: str) -> list[dict[str, Any]]:
    """The case in which it fires, before it has been so for long enough; none where it fires at once."""
    hold = re.fullmatch(r"(\d+)([mh])", ALERTS[alert].get("for", ""))
    if hold is None:
        return []
    minutes = int(hold[1]) * {"m": 1, "h": 60}[hold[2]]
    return [CASES[alert]["fires"] | {"at": f"{minutes - 1}m"}]


def _fired_labels(alert: str) -> dict[str, str]:
    """The labels of the alert that the case expects, but for its severity: those of the first series' target."""
    case = CASES[alert]["fires"]
    _, target = _series(next(iter(case["series"])))
    more: dict[str, str] = case.get("with", {})
    return {label: target[label] for label in KEPT_LABELS[case["is"]]} | more


def _write(folder: Path, alert: str, tests: list[dict[str, Any]]) -> Path:
    """A file of tests of one rule; without its annotations, of which promtool would compare the text."""
    rule = {name: value for name, value in ALERTS[alert].items() if name != "annotations"}
    rules = folder / f"{alert}.rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
    written = folder / f"{alert}.tests.yaml"
    written.write_text(
        yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": tests})
    )
    return written


def test_prometheus_takes_the_rules() -> None:
    skip_without_promtool()
    code, output = promtool("check", "rules", RULES)
    assert code == 0, output
    assert f"{len(ALERTS)} rules found" in output


def test_there_is_a_case_for_each_alert() -> None:
    assert list(CASES) == list(ALERTS)
    assert all(case["silent"] for case in CASES.values())


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> str:
    """promtool's report of all cases: it takes longer to start than to evaluate one."""
    skip_without_promtool()
    folder = tmp_path_factory.mktemp("rules")
    files = []
    for alert in ALERTS.keys() & CASES.keys():
        expected = _fired_labels(alert) | {"severity": ALERTS[alert]["labels"]["severity"]}
        fires = [_test_of(alert, case, [expected]) for case in _firing(alert)]
        silent = [_test_of(alert, case, []) for case in (*CASES[alert]["silent"], *_too_early(alert))]
        files.append(_write(folder, alert, [*fires, *silent]))
    code, output = promtool("test", "rules", *files)
    assert output.count("SUCCESS") + output.count("FAILED:") == len(files), output
    assert (code == 0) == ("FAILED:" not in output), output
    return output


@pytest.mark.parametrize("alert", ALERTS)
def test_it_fires_when_it_should_and_not_otherwise(alert: str, evaluation: str) -> None:
    (own,) = (part for part in evaluation.split("Unit Testing:") if f"/{alert}.tests.yaml" in part)
    assert "SUCCESS" in own, own


def test_a_case_that_is_wrong_is_found(tmp_path: Path) -> None:
    skip_without_promtool()
    (alert, *_) = ALERTS
    code, output = promtool(
        "test", "rules", _write(tmp_path, alert, [_test_of(alert, CASES[alert]["fires"], [])])
    )
    assert code != 0, output


@pytest.mark.parametrize("alert", ALERTS)
def test_it_says_what_is_wrong_with_labels_that_it_has(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", "".join(rule["annotations"].values())))
    assert used <= set(_fired_labels(alert)), "an annotation names a label that the alert does not have"
