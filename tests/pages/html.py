"""Reads a page as a browser would, strictly: what is open must be closed, and scripts are not expected."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "input", "br", "hr", "img"})


@dataclass
class Document:
    """The page's parts. `texts`: all text outside of the stylesheet, in order. `ids`: not used twice."""

    tags: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str, str | None]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text that people see."""
        return "".join(self.texts)

    @property
    def links(self) -> list[str]:
        """The targets of links, in order."""
        return [value or "" for tag, name, value in self.attributes if (tag, name) == ("a", "href")]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.document = Document()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.document.tags.append(tag)
        self.document.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.document.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data!r}")


def parsed(page: bytes) -> Document:
    """The document. Fails if it is not well-formed, or has what no page has."""
    text = page.decode()
    assert text.startswith("<!DOCTYPE html>\n")
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    document = reader.document
    assert "script" not in document.tags
    handlers = [name for _, name, _ in document.attributes if name.startswith("on") or name == "style"]
    assert handlers == []
    assert all(link.startswith("/") and not link.startswith("//") for link in document.links)
    return document
