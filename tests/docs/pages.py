"""The pages of the project, their links and their headings."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from scripts.project import ROOT

PAGES: Final = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]

_FENCE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", flags=re.MULTILINE)


def page_name(page: Path) -> str:
    """Its path in the project."""
    return str(page.relative_to(ROOT))


def links(text: str) -> list[tuple[str, str]]:
    """Path and anchor of each link within the project; the path of an anchor alone is empty."""
    found = (target.partition("#") for target in _LINK.findall(_FENCE.sub("", text)))
    return [(path, anchor) for path, _, anchor in found if "://" not in path]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    made: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        numbered = (f"{slug}-{number}" for number in range(1, 100))
        made.add(slug if slug not in made else next(one for one in numbered if one not in made))
    return made


def found_in_pages(find: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """The findings in each page, by its name; pages without one are left out."""
    return {page_name(page): found for page in PAGES if (found := sorted(find(page)))}
