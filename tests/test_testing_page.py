"""docs/testing.md names every variable that tests read, and no other."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
VARIABLE = re.compile(r"KAFSCALE_TEST_[A-Z]+")


def test_every_variable_is_on_the_page() -> None:
    read = {
        name
        for path in (REPOSITORY / "tests").rglob("*.py")
        for line in path.read_text().splitlines()
        if "environ" in line
        for name in VARIABLE.findall(line)
    }
    assert set(VARIABLE.findall((REPOSITORY / "docs/testing.md").read_text())) == read
