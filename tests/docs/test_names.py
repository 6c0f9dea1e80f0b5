"""Settings, metrics, make targets and commands that pages name exist."""

import re
from pathlib import Path

from kafscale.commands.cli import main
from kafscale.lake.metric_families import FAMILIES as EXPORT_FAMILIES
from kafscale.operator.metric_families import FAMILIES as OPERATOR_FAMILIES
from kafscale.ops.metric_families import FAMILIES
from kafscale.settings.broker import SETTINGS
from scripts.project import ROOT
from tests.docs.pages import found_in_pages

VARIABLES = {row.variable for row in SETTINGS}
METRICS = {family.name for family in (*FAMILIES, *OPERATOR_FAMILIES, *EXPORT_FAMILIES)}
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))

REMOVED = {"KAFSCALE_EARLY_FLUSHES", "KAFSCALE_FLUSH_CONCURRENCY"}
"""Settings of earlier releases: the changelog and decisions may name them."""

# A name that goes on with an underscore or an ellipsis stands for several.
_VARIABLE = re.compile(r"KAFSCALE_(?!TEST_)[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_…])")
_METRIC = re.compile(r"\bkafscale_[a-z0-9_]*[a-z0-9](?![a-z0-9_…])")
_HISTOGRAM_PART = re.compile(r"_(count|sum|bucket)$")
_TARGET = re.compile(r"(?:`|^ {3,8})make ([a-z][a-z0-9-]*)", flags=re.MULTILINE)
_COMMAND = re.compile(r"(?:`|^ {3,8})kafscale ([a-z]+)", flags=re.MULTILINE)


def test_settings_named_in_pages_exist() -> None:
    def unknown(page: Path) -> set[str]:
        is_history = page.name == "CHANGELOG.md" or page.parent.name == "decisions"
        return set(_VARIABLE.findall(page.read_text())) - VARIABLES - (REMOVED if is_history else set())

    assert found_in_pages(unknown) == {}


def test_metrics_named_in_pages_exist() -> None:
    def unknown(page: Path) -> set[str]:
        named = set(_METRIC.findall(page.read_text())) - METRICS
        return {name for name in named if _HISTOGRAM_PART.sub("", name) not in METRICS}

    assert found_in_pages(unknown) == {}


def test_make_targets_named_in_pages_exist() -> None:
    assert found_in_pages(lambda page: set(_TARGET.findall(page.read_text())) - TARGETS) == {}


def test_commands_named_in_pages_exist() -> None:
    assert found_in_pages(lambda page: set(_COMMAND.findall(page.read_text())) - set(main.commands)) == {}


def test_names_that_do_not_exist_are_found() -> None:
    text = "    make nothing\n`kafscale undo` with KAFSCALE_NOTHING and kafscale_nothing_total, KAFSCALE_S3_…"
    assert _VARIABLE.findall(text) == ["KAFSCALE_NOTHING"]
    assert _METRIC.findall(text) == ["kafscale_nothing_total"]
    assert (_TARGET.findall(text), _COMMAND.findall(text)) == (["nothing"], ["undo"])
