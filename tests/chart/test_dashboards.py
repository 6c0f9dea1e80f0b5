"""Dashboards ask for what there is, lie side by side, and come with the chart as Grafana's sidecar wants them."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.dashboards.files import DASHBOARDS
from scripts.dashboards.model import COLUMNS, Dashboard, Look, Panel, Query, Row, to_json
from tests.chart.expression_checks import problems
from tests.chart.known_metrics import KNOWN, OWN, TARGET_LABELS, series
from tests.chart.promql import selectors
from tests.chart.test_alerts import ALERTS
from tests.support.helm import CHART, of_kind, rendered
from tests.support.k8s_install import helm_missing

# Half of what a ConfigMap may hold.
MOST_BYTES = 512 * 1024
LOADED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))
}


def _panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dashboard["panels"]
    return found


def _expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    """As Grafana asks for them."""
    for panel in _panels(dashboard):
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "2m")


def _legends(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in _panels(dashboard):
        for target in panel.get("targets", ()):
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                yield label, target["expr"]


def test_the_files_are_those_of_the_code() -> None:
    assert set(LOADED) == {one.name for one in DASHBOARDS}
    assert {f"kafscale-{name}" for name in LOADED} == {one["uid"] for one in LOADED.values()}


@pytest.mark.parametrize("name", LOADED)
def test_a_dashboard_asks_for_what_there_is(name: str) -> None:
    found = [problem for expression in _expressions(LOADED[name]) for problem in problems(expression)]
    assert found == []


@pytest.mark.parametrize("name", LOADED)
def test_it_chooses_by_what_there_is_and_by_nothing_else(name: str) -> None:
    dashboard = LOADED[name]
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps([dashboard["panels"], dashboard["templating"]])))
    assert used - {"__rate_interval"} - set(variables) - {"__all"} == set()
    assert set(variables) - used == set(), "a variable that changes nothing"
    for variable in variables.values():
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
        assert found is not None, variable
        (selector,) = selectors(found[1])
        assert found[2] in KNOWN[selector.metric][1] | TARGET_LABELS
        assert list(problems(found[1])) == []


@pytest.mark.parametrize("name", LOADED)
def test_a_legend_names_labels_that_are_left(name: str) -> None:
    for label, expression in _legends(LOADED[name]):
        assert re.search(rf"by \([^)]*\b{label}\b[^)]*\)", expression), (label, expression)


@pytest.mark.parametrize("name", LOADED)
def test_panels_lie_side_by_side(name: str) -> None:
    panels = _panels(LOADED[name])
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = {panel["id"]: panel["gridPos"] for panel in panels}
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= COLUMNS for one in taken.values())
    for one, other in combinations(taken.values(), 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@pytest.mark.parametrize("name", LOADED)
def test_every_panel_with_our_metrics_says_what_they_mean(name: str) -> None:
    own = set(series(OWN))
    for panel in _panels(LOADED[name]):
        asked = {one.metric for t in panel.get("targets", ()) for one in selectors(_plain(t["expr"]))}
        assert bool(asked & own) == bool(panel.get("description")), panel["title"]


def _plain(expression: str) -> str:
    return expression.replace("$__rate_interval", "2m")


def test_every_metric_of_ours_is_shown_or_watched() -> None:
    shown = {
        one.metric for board in LOADED.values() for text in _expressions(board) for one in selectors(text)
    }
    watched = {one.metric for rule in ALERTS.values() for one in selectors(rule["expr"])}
    parts = shown | watched
    forgotten = [family.name for family in OWN if not set(series([family])) & parts]
    assert forgotten == []


def test_panels_that_do_not_fit_begin_a_new_line() -> None:
    panels = [
        Panel(title=str(width), queries=[Query(expression="up")], width=width, height=height)
        for width, height in ((12, 4), (8, 9), (12, 5), (24, 3))
    ]
    board = to_json(
        Dashboard(name="x", title="x", description="", variables=[], rows=[Row(title="r", panels=panels)])
    )
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert places == [(0, 0), (0, 1), (12, 1), (0, 10), (0, 15)]
    assert Look(board["panels"][1]["type"]) is Look.LINES


def test_the_chart_makes_a_config_map_of_each(tmp_path: Path) -> None:
    if (missing := helm_missing()) is not None:
        pytest.skip(missing)
    values = {"enabled": True, "annotations": {"grafana_folder": "Kafscale"}}
    found = of_kind(rendered(tmp_path, {"monitoring": {"dashboards": values}}), "ConfigMap")
    boards = [one for one in found if one["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert len(boards) == len(LOADED)
    loaded = {}
    for one in boards:
        assert one["metadata"]["annotations"] == {"grafana_folder": "Kafscale"}
        ((file, content),) = one["data"].items()
        assert len(content.encode()) < MOST_BYTES
        loaded[file] = json.loads(content)
    assert loaded == {f"kafscale-{name}.json": board for name, board in LOADED.items()}


def test_without_being_asked_the_chart_makes_none(tmp_path: Path) -> None:
    if (missing := helm_missing()) is not None:
        pytest.skip(missing)
    assert "dashboard" not in yaml.safe_dump(rendered(tmp_path))
