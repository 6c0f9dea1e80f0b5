"""The reading order names every page."""

import pytest

from scripts.generate_docs import ROOT
from tests.docs.pages import PAGES, links, page_name

INDEX = ROOT / "docs/README.md"
DECISIONS = ROOT / "docs/decisions"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != DECISIONS], ids=page_name)
def test_every_page_is_in_the_reading_order(page: object) -> None:
    named = {(INDEX.parent / path).resolve() for path, _ in links(INDEX.read_text())}
    assert page in named | {INDEX}
