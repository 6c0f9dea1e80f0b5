"""Names of tests are short: subject, condition, result in at most 60 characters, as CONTRIBUTING.md says."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
MAX_LENGTH: Final = 60
_MAY_BE_LONG = re.compile(rf"\bdef test_\w{{{MAX_LENGTH - 4},}}")  # parsing every file takes seconds


def long_names(source: str) -> Iterator[str]:
    """The test functions and methods above the limit, each with its length."""
    if not _MAY_BE_LONG.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = len(node.name)
            if node.name.startswith("test_") and length > MAX_LENGTH:
                yield f"{node.name}: {length} characters"


def test_names_of_tests_stay_within_the_limit() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in long_names(path.read_text())
    ]
    assert found == [], f"names above {MAX_LENGTH} characters"


def test_a_long_name_is_found_in_functions_and_methods() -> None:
    fits, long = "test_".ljust(MAX_LENGTH, "a"), "test_".ljust(MAX_LENGTH + 1, "b")
    helper = long.removeprefix("test_").ljust(MAX_LENGTH + 1, "b")
    source = "\n".join(
        [
            f"def {fits}(): ...",
            f"def {long}(): ...",
            f"def {helper}(): ...",
            "class TestMethods:",
            f"    async def {long}(self): ...",
        ]
    )
    assert list(long_names(source)) == [f"{long}: {MAX_LENGTH + 1} characters"] * 2
