"""Every expression of a dashboard gives something, as Prometheus evaluates it over series such as there are."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafscale.ops.metric_families import MetricType
from tests.chart.known_metrics import KNOWN
from tests.chart.promql import Selector, selectors
from tests.chart.test_dashboards import LOADED
from tests.support.promtool import promtool, skip_without_promtool

CHOSEN = {"namespace": "streams", "cluster": "prod", "pod": ".*", "group": ".*", "topic": ".*"}
PODS = ("prod-0", "prod-1")
AT = "10m"


def _asked(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Titles and expressions, with the variables chosen."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "2m")
            yield panel["title"], re.sub(r"\$(\w+)", lambda found: CHOSEN[found[1]], expression)


def _series(selector: Selector) -> Iterator[dict[str, str]]:
    """The series that match it, of two pods."""
    kind, labels = KNOWN[selector.metric]
    chosen = dict.fromkeys(labels, "some")
    for matcher in selector.matchers:
        if matcher.op in ("=", "=~") and matcher.value != ".*":
            chosen[matcher.label] = matcher.value.split("|")[0]
    chosen = {"namespace": "streams", "cluster": "prod"} | chosen
    values = "0+1x20" if kind is MetricType.COUNTER else "7x20"
    for pod in PODS:
        for bound in ("0.1", "+Inf") if "le" in chosen else ("",):
            whole = chosen | {"pod": pod} | ({"le": bound} if bound else {})
            written = ",".join(f'{label}="{value}"' for label, value in sorted(whole.items()))
            yield {"series": f"{selector.metric}{{{written}}}", "values": values}


@pytest.mark.parametrize("name", LOADED)
def test_every_expression_gives_something(name: str, tmp_path: Path) -> None:
    skip_without_promtool()
    asked = list(_asked(LOADED[name]))
    series = {one["series"]: one for _, text in asked for asks in selectors(text) for one in _series(asks)}
    nothing: list[Any] = []
    tests = {
        "interval": "1m",
        "input_series": list(series.values()),
        # Said to give nothing, each must fail by giving something.
        "promql_expr_test": [
            {"expr": text, "eval_time": AT, "exp_samples": nothing}
            for text in dict.fromkeys(t for _, t in asked)
        ],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [tests]}))
    code, output = promtool("test", "rules", path)
    assert code != 0
    gave = re.findall(r'expr: "(.*)", time: 10m, *$', output, flags=re.MULTILINE)
    empty = [title for title, text in asked if text.replace('"', '\\"') not in gave]
    assert empty == [], output
