"""Links between pages lead somewhere, and so do the names of pages in code."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from scripts.project import ROOT
from tests.docs.pages import anchors, found_in_pages, links

NAMES_PAGES = (
    "kafscale",
    "pyspark_kafscale",
    "spark_jobs",
    "scripts",
    "bench",
    "tests",
    "deploy",
    "docs",
    "examples",
)
"""Folders whose files may name pages of the project."""
TEXT = frozenset({".py", ".md", ".toml", ".yaml", ".yml", ".tpl", ".txt", ".java", ".go", ".js", ".xml"})
NAMES = frozenset({"Makefile", "Dockerfile"})

_PAGE = re.compile(r"(?<![\w./-])[\w./-]*\w\.md\b(?:#([\w-]+))?")
_FILE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:py|java))`")
_ADDRESS = re.compile(r"\w+://\S+")


def test_links_lead_to_files() -> None:
    def missing(page: Path) -> list[str]:
        targets = [path for path, _ in links(page.read_text()) if path]
        return [target for target in targets if not (page.parent / target).exists()]

    assert found_in_pages(missing) == {}


def test_anchors_lead_to_headings() -> None:
    def missing(page: Path) -> list[str]:
        named = [(page.parent / path if path else page, anchor) for path, anchor in links(page.read_text())]
        return [
            f"{target.name}#{anchor}"
            for target, anchor in named
            if anchor and target.suffix == ".md" and anchor not in anchors_of(target.resolve())
        ]

    assert found_in_pages(missing) == {}


def test_pages_named_in_code_exist() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in _texts()
        if path != Path(__file__)
        if ".md" in (text := path.read_text())
        for name in _named(text)
        if not _is_page(path, name)
    }
    assert missing == set()


def test_files_named_in_pages_exist() -> None:
    def missing(page: Path) -> set[str]:
        text = page.read_text()
        # A superseded decision names the files that it was about.
        named = set() if "\nStatus: superseded by " in text else set(_FILE.findall(text))
        return {name for name in named if not _is_file(name)}

    assert found_in_pages(missing) == {}


def test_a_name_without_a_page_is_found() -> None:
    text = 'see docs/nowhere.md and (fsck.md, "Problems"); not https://example.com/other.md'
    assert _named(text) == ["docs/nowhere.md", "fsck.md"]
    assert [_is_page(ROOT / "kafscale/errors.py", name) for name in _named(text)] == [False, True]
    assert not _is_page(ROOT / "Makefile", "docs/fsck.md#no-such-heading")


@cache
def anchors_of(page: Path) -> frozenset[str]:
    return frozenset(anchors(page.read_text()))


def _texts() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and _is_text(path))
    for folder in NAMES_PAGES:
        for path in (ROOT / folder).rglob("*"):
            parts = set(path.parts)
            if _is_text(path) and path.is_file() and not parts & {"node_modules", "__pycache__"}:
                yield path


def _is_text(path: Path) -> bool:
    return path.suffix in TEXT or path.name in NAMES


def _named(text: str) -> list[str]:
    return [match.group() for match in _PAGE.finditer(_ADDRESS.sub("", text))]


def _is_file(name: str) -> bool:
    """By its path in the project or in one of its packages, or by its name alone."""
    if "/" not in name:
        return name in _file_names()
    return any((folder / name).is_file() for folder in (ROOT, *(ROOT / one for one in NAMES_PAGES)))


@cache
def _file_names() -> frozenset[str]:
    return frozenset(path.name for path in _texts())


def _is_page(path: Path, name: str) -> bool:
    """By its path in the project, beside the file that names it, or among the documents."""
    name, _, anchor = name.partition("#")
    found = [folder / name for folder in (ROOT, path.parent, ROOT / "docs") if (folder / name).is_file()]
    return any(not anchor or anchor in anchors_of(page.resolve()) for page in found)
