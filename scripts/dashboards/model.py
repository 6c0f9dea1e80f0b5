"""A Grafana dashboard as values, and the JSON that Grafana loads."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kafscale.lake import metric_families as of_exports
from kafscale.operator import metric_families as of_operator
from kafscale.ops import metric_families as of_brokers
from kafscale.ops.metric_families import Family

COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_GREEN, _YELLOW, _RED = "green", "yellow", "red"
_PARTS: Final = re.compile(r"_(bucket|sum|count)$")


class Look(StrEnum):
    """How a panel shows its figures, by Grafana's names."""

    LINES = "timeseries"
    FIGURE = "stat"
    TABLE = "table"


class Unit(StrEnum):
    """Grafana's names of units."""

    COUNT = "short"
    PER_SECOND = "cps"
    REQUESTS = "reqps"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    SECONDS = "s"
    SHARE = "percentunit"
    CORES = "none"
    DOLLARS = "currencyUSD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A PromQL expression; `legend` with `{{label}}` for a label's value."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`warn_at`, `alarm_at`: from when on it is yellow and red. `words`: what stands in place of a value."""

    title: str
    queries: Sequence[Query]
    unit: Unit = Unit.COUNT
    look: Look = Look.LINES
    width: int = 12
    height: int = 8
    stacked: bool = False
    warn_at: float | None = None
    alarm_at: float | None = None
    most: float | None = None
    words: Mapping[int, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels with a heading, which are laid out from left to right."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A choice above the dashboard: the values of `label` in `series`."""

    name: str
    series: str
    label: str
    several: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """`name`: of its file and, after `kafscale-`, its uid."""

    name: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]
    families: Sequence[Family] = (*of_brokers.FAMILIES, *of_operator.FAMILIES, *of_exports.FAMILIES)


def to_json(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana loads it. Ids and places follow from the order alone."""
    return {
        "uid": f"kafscale-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["kafscale"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [
            {
                "type": "dashboards",
                "title": "Kafscale",
                "tags": ["kafscale"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_source_variable(), *map(_variable, dashboard.variables)]},
        "panels": _laid_out(dashboard),
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.series}, {variable.label})"
    found: dict[str, Any] = {
        "name": variable.name,
        "label": variable.name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": variable.name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": variable.several,
        "includeAll": variable.several,
    }
    if variable.several:
        found["allValue"] = ".*"
        found["current"] = {"text": ["All"], "value": ["$__all"]}
    return found


def _laid_out(dashboard: Dashboard) -> list[dict[str, Any]]:
    documented = {family.name: family.documentation for family in dashboard.families}
    found: list[dict[str, Any]] = []
    top = 0
    for row in dashboard.rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
        heading = {"id": len(found) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": []}
        found.append({**heading, "gridPos": place})
        top += 1
        left = highest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, highest = top + highest, 0, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            found.append({"id": len(found) + 1, **_panel(panel, documented), "gridPos": place})
            left, highest = left + panel.width, max(highest, panel.height)
        top += highest
    return found


def _panel(panel: Panel, documented: Mapping[str, str]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            **_of_a_moment(panel),
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "type": panel.look.value,
        "title": panel.title,
        "description": " ".join(_meanings((query.expression for query in panel.queries), documented)),
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel),
        **_transformations(panel),
    }


def _meanings(expressions: Iterable[str], documented: Mapping[str, str]) -> list[str]:
    """The descriptions of the metrics in the expressions, each once."""
    names = (name for expression in expressions for name in re.findall(r"\b[a-z]\w+", expression))
    return list(dict.fromkeys(found for name in names if (found := documented.get(_PARTS.sub("", name)))))


def _of_a_moment(panel: Panel) -> dict[str, Any]:
    return {"instant": True, "format": "table"} if panel.look is Look.TABLE else {}


def _transformations(panel: Panel) -> dict[str, Any]:
    """A table has a column for each label and one for the value."""
    if panel.look is not Look.TABLE:
        return {}
    without_time = {"id": "organize", "options": {"excludeByName": {"Time": True}}}
    largest_first = {"id": "sortBy", "options": {"sort": [{"field": "Value", "desc": True}]}}
    return {"transformations": [without_time, largest_first]}


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": _GREEN, "value": None}]
    steps += [
        {"color": color, "value": value}
        for color, value in ((_YELLOW, panel.warn_at), (_RED, panel.alarm_at))
        if value is not None
    ]
    found: dict[str, Any] = {
        "unit": panel.unit.value,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.most is not None:
        found["max"] = panel.most
    if panel.words is not None:
        options = {str(value): {"text": word, "index": value} for value, word in panel.words.items()}
        found["mappings"] = [{"type": "value", "options": options}]
    if panel.look is Look.LINES:
        found["custom"] = {
            "fillOpacity": 25 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "dashed" if len(steps) > 1 else "off"},
        }
    return found


def _options(panel: Panel) -> dict[str, Any]:
    match panel.look:
        case Look.LINES:
            return {
                "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case Look.FIGURE:
            return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
        case Look.TABLE:
            return {"showHeader": True}
