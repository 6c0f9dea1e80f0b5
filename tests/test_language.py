"""Code and pages follow the glossary: how docstrings open, and the words that are not used."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.project import ROOT
from tests.docs.pages import PAGES

PACKAGES: Final = ("kafscale", "spark_jobs", "scripts", "bench", "tests", "examples")
_PROSE: Final = ("kafscale", "spark_jobs", "scripts", "bench", "examples")

_OPENING = re.compile(r"(?:What|Whether)\b")
_MAY_OPEN = re.compile(r'"""(?:What|Whether)\b')
_NOT_USED = re.compile(
    r"\b(?:nobody|somebody|anybody|everybody|whoever|for ever|anew|strangers?|befalls?|under way|on (?:its|their) way"
    r"|(?:is|are|was|were) told|lets? go|letting go|what (?:becomes|became) of)\b",
    flags=re.IGNORECASE,
)
_HISTORY: Final = ("Status: superseded by", "# Glossary", "# Changelog")
"""Pages with one of these say what was, or which words are not used."""


def wrong_openings(source: str) -> Iterator[str]:
    """Docstrings, those of attributes too, that open with What or Whether."""
    if not _MAY_OPEN.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str) and _OPENING.match(text):
                yield text.splitlines()[0]


def words_not_used(text: str) -> list[str]:
    """Those of the glossary's last table that a machine can tell."""
    return [" ".join(found.group().split()) for found in _NOT_USED.finditer(text)]


def _sources(packages: tuple[str, ...]) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


def test_no_docstring_opens_with_what_or_whether() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {line}"
        for path in _sources(PACKAGES)
        for line in wrong_openings(path.read_text())
    }
    assert found == set()


def test_code_has_no_words_that_the_glossary_rules_out() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in _sources(_PROSE)
        for word in words_not_used(path.read_text())
    }
    assert found == set()


def test_pages_have_no_words_that_the_glossary_rules_out() -> None:
    texts = {page: page.read_text() for page in PAGES}
    found = {
        f"{page.relative_to(ROOT)}: {word}"
        for page, text in texts.items()
        if not any(mark in text for mark in _HISTORY)
        for word in words_not_used(text)
    }
    assert found == set()


def test_wrong_words_and_openings_are_found() -> None:
    source = 'class A:\n    """What it is."""\n    x = 1\n    """Whether it is."""\n    y = "What"\n'
    assert list(wrong_openings(source)) == ["What it is.", "Whether it is."]
    assert words_not_used("Nobody is told;\na gain is for everyone, for everybody") == [
        "Nobody",
        "is told",
        "everybody",
    ]
