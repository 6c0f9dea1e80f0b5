"""The README names tasks that exist, and is short."""

import re

from scripts.project import ROOT

README = (ROOT / "README.md").read_text()
MOST_WORDS = 950


def test_the_readme_names_only_tasks_that_exist() -> None:
    tasks = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"(?:`|^ {4})make ([a-z]+)", README, flags=re.MULTILINE))
    assert {"run", "test"} <= named
    assert named <= tasks


def test_the_readme_is_short() -> None:
    """Commands and programs are not counted, nor are the addresses of links."""
    prose = re.sub(r"```.*?```|^ {4}.*?$|(?<=\])\([^)]*\)", "", README, flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"\S*\w\S*", prose)) <= MOST_WORDS
