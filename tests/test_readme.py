"""The README names tasks that exist, and is short."""

import re

from scripts.generate_docs import ROOT

README = (ROOT / "README.md").read_text()
MOST_WORDS = 1100


def test_the_readme_names_only_tasks_that_exist() -> None:
    tasks = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"(?:`|^ {4})make ([a-z]+)", README, flags=re.MULTILINE))
    assert {"run", "test"} <= named
    assert named <= tasks
