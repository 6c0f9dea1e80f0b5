"""The documents say what the code does: tables are current, links lead somewhere, commands exist."""

import re
from pathlib import Path

import pytest

from scripts.generate_docs import GENERATED, ROOT, filled, generated

DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]


@pytest.mark.parametrize("document", GENERATED)
def test_generated_tables_are_current(document: str) -> None:
    assert (ROOT / document).read_text() == generated(document), "run `make docs`"


def test_a_table_takes_the_place_of_an_older_one() -> None:
    text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n"
    assert filled(text, "x", "new") == "a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nb\n"
    with pytest.raises(ValueError, match="begin y"):
        filled(text, "y", "new")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_the_readme_names_only_tasks_that_exist() -> None:
    tasks = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"(?:`|^ {4})make ([a-z]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE))
    assert {"run", "test"} <= named
    assert named <= tasks
