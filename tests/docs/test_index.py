"""The reading order names every page, and CONTRIBUTING every room of the package."""

import re

import pytest

from scripts.project import ROOT
from tests.docs.pages import PAGES, links, page_name

INDEX = ROOT / "docs/README.md"
DECISIONS = ROOT / "docs/decisions"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != DECISIONS], ids=page_name)
def test_every_page_is_in_the_reading_order(page: object) -> None:
    named = {(INDEX.parent / path).resolve() for path, _ in links(INDEX.read_text())}
    assert page in named | {INDEX}


def test_every_package_is_in_contributings_tree() -> None:
    tree = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## Where things are")[2].partition("## Recipes")[0]
    )
    named = set(re.findall(r"(?:^ {6}| )([a-z]+)/(?= )", tree, flags=re.MULTILINE))
    packages = {path.parent.name for path in (ROOT / "kafscale").glob("*/__init__.py")}
    assert packages <= named
