"""Every extra that a page, a message or an example names is one that pyproject.toml declares."""

import re
import tomllib

from scripts.project import ROOT
from tests.docs.pages import PAGES, page_name

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
# kafscale[cluster], dist/kafscale-0.1.0-py3-none-any.whl[cluster], and '.[arrow]' of a checkout.
_NAMED = re.compile(r"(?:kafscale|\.whl|['\" ]\.)\[([a-z][a-z, _-]*)\]")
_IN_WORDS = re.compile(r"\bextras? `([a-z-]+)`")
SOURCES = [
    *PAGES,
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "kafscale").rglob("*.py")),
    *sorted((ROOT / "spark_jobs").rglob("*.py")),
    ROOT / "Makefile",
    ROOT / "Dockerfile",
    *sorted((ROOT / "deploy").rglob("Dockerfile")),
    *sorted((ROOT / "deploy").rglob("*.yaml")),
]


def named_extras(text: str) -> set[str]:
    """The names; without those in braces, which a program fills in."""
    lists = [*_NAMED.findall(text), *_IN_WORDS.findall(text)]
    return {name.strip() for one in lists for name in one.split(",")}


def test_extras_are_found_in_every_spelling() -> None:
    text = "'kafscale[cluster,arrow]' 'dist/kafscale-0.1-py3-none-any.whl[iceberg]' '.[spark]'; the extra `bench`"
    assert named_extras(text) == {"cluster", "arrow", "iceberg", "spark", "bench"}


def test_named_extras_exist() -> None:
    unknown = {
        page_name(source): sorted(missing)
        for source in SOURCES
        if (missing := named_extras(source.read_text(errors="replace")) - EXTRAS)
    }
    assert not unknown, "these name extras that pyproject.toml does not declare"


def test_pages_name_extras() -> None:
    found = {name for page in PAGES for name in named_extras(page.read_text())}
    assert {"cluster", "arrow", "iceberg", "spark", "operator", "all"} <= found
