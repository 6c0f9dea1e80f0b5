"""Every alert has its section in the run-book, which names only what there is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafscale.operator.schema import cluster_schema
from scripts.chart_values import documented_values
from tests.chart.known_metrics import KNOWN, OWN
from tests.chart.test_alerts import ALERTS

ROOT = Path(__file__).resolve().parents[2]
RUN_BOOK = (ROOT / "docs/alerts.md").read_text()
SECTIONS = dict(re.findall(r"^### (Kafscale\w+)\n(.*?)(?=^##|\Z)", RUN_BOOK, flags=re.MULTILINE | re.DOTALL))
CODE = set(re.findall(r"`([^`\n]+)`", RUN_BOOK))
COMMANDS = ("kubectl ", "kafscale ", "kafka-", "--", "broker id ", "mvcc:")


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from _fields(inner)


def test_every_alert_has_its_section_in_the_order_of_the_rules() -> None:
    assert list(SECTIONS) == list(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_a_section_says_what_to_look_at_and_what_to_do(alert: str) -> None:
    meaning, look, rest = SECTIONS[alert].partition("\n- **Look at** ")
    _, do, action = rest.partition("\n- **Do** ")
    assert look and do, "a section has a meaning, `- **Look at**` and `- **Do**`"
    assert len(meaning.strip()) > 40
    assert action.strip()


def test_links_within_the_page_lead_to_headings() -> None:
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", RUN_BOOK, flags=re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", RUN_BOOK)) <= headings


def test_links_to_sections_of_other_pages_lead_there() -> None:
    for page, anchor in re.findall(r"\]\(([\w-]+\.md)#([\w-]+)\)", RUN_BOOK):
        headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors, (page, anchor)


def test_it_names_only_metrics_that_there_are() -> None:
    families = {family.name for family in OWN} | set(KNOWN)
    named = set(re.findall(r"kafscale_\w+", RUN_BOOK))
    assert named <= families


def test_it_names_only_settings_and_fields_that_there_are() -> None:
    settings = set(json.loads((ROOT / "deploy/helm/kafscale/files/settings.json").read_text()))
    known = settings | set(_fields(cluster_schema.spec()))
    known |= {part for value in documented_values() for part in value.path.split(".")}
    known |= {"scaleDown", "stabilizationWindowSeconds"}
    words = {part for code in CODE if re.fullmatch(r"[\w.]+", code) for part in code.split(".")}
    named = {word for word in words if re.fullmatch(r"[a-z]+([A-Z][a-z0-9]*)+", word)}
    assert named <= known
    assert named & settings


def test_log_lines_that_it_quotes_are_those_of_the_code() -> None:
    source = "".join(path.read_text() for path in (ROOT / "kafscale").rglob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", source)
    quoted = {
        code
        for code in CODE
        if " " in code and re.match(r"[a-z]", code) and not code.startswith(COMMANDS) and "=" not in code
    }
    assert len(quoted) > 5
    # Of a line with a state in it.
    assert {line for line in quoted if line.replace("UNAVAILABLE", "%s") not in said} == set()
