"""Decisions have one form, and their index agrees with them."""

import re
from pathlib import Path

import pytest

from scripts.project import ROOT
from tests.docs.pages import page_name

FOLDER = ROOT / "docs/decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))

_OTHER = r"\[\d{4}\]\(\d{4}-[\w-]+\.md\)"
_HEAD = re.compile(r"# (?P<number>\d{4}): (?P<title>[A-Z].*)\n\nStatus: (?P<status>.+)\n\n")
_STATUS = re.compile(rf"accepted(, amended by {_OTHER}(, {_OTHER})*)?|superseded by {_OTHER}")
_ROW = re.compile(r"^\| (\d{4}) \| \[(.+?)\]\((.+?)\) \| (.+) \|$", flags=re.MULTILINE)
_BOLD_PART = re.compile(
    r"^\*\*(?:Context|Decisions?|Consequences|What it costs|Rejected|Measured|Figures|Checked)\b.*",
    flags=re.MULTILINE,
)


@pytest.mark.parametrize("decision", DECISIONS, ids=page_name)
def test_decision_begins_with_number_title_status(decision: Path) -> None:
    head = _HEAD.match(decision.read_text())
    assert head is not None
    assert decision.name.startswith(f"{head['number']}-")
    assert _STATUS.fullmatch(head["status"]), head["status"]


@pytest.mark.parametrize("decision", DECISIONS, ids=page_name)
def test_parts_of_a_decision_are_headings(decision: Path) -> None:
    text = decision.read_text()
    assert re.search(r"^##+ Decision$", text, flags=re.MULTILINE)
    assert _BOLD_PART.findall(text) == []


def test_numbers_of_decisions_are_unique() -> None:
    numbers = [decision.name[:4] for decision in DECISIONS]
    assert len(set(numbers)) == len(numbers)


def test_index_agrees_with_the_decisions() -> None:
    heads = [(decision.name, _HEAD.match(decision.read_text())) for decision in DECISIONS]
    written = {(head["number"], head["title"], name, head["status"]) for name, head in heads if head}
    rows = _ROW.findall((FOLDER / "README.md").read_text())
    assert set(rows) == written
    assert len(rows) == len(DECISIONS)
