"""HTML as a tree, so that every text is escaped where it is written out: nothing here takes markup as text."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from kafscale.protocol.quoting import quoted

Element = ElementTree.Element
Child = Element | str | None

MAX_NAME_CHARACTERS: Final = 80
"""How much of a name that a client chose is shown."""

MAX_LINKED_CHARACTERS: Final = 4_000
"""A longer name has no page of its own: its address would be longer than a request may be."""


def element(tag: str, *children: Child, **attributes: str | None) -> Element:
    """An element with its children in their order; None is left out.

    A trailing underscore of an attribute's name is removed (`class_`), others are hyphens.
    """
    named = {
        name.removesuffix("_").replace("_", "-"): value
        for name, value in attributes.items()
        if value is not None
    }
    made = Element(tag, named)
    last: Element | None = None
    for child in children:
        if isinstance(child, str):
            if last is None:
                made.text = (made.text or "") + child
            else:
                last.tail = (last.tail or "") + child
        elif child is not None:
            made.append(child)
            last = child
    return made


def written(page: Element) -> bytes:
    """The document."""
    text = ElementTree.tostring(page, encoding="unicode", method="html")
    return b"<!DOCTYPE html>\n" + text.encode("utf-8", "xmlcharrefreplace") + b"\n"


def name_of(text: str, max_characters: int = MAX_NAME_CHARACTERS) -> Element:
    """A name that a client may have chosen: cut, printable, and apart from the direction of the text around it."""
    shown = quoted(text, max_characters)
    return element("bdi", shown or "(empty)", class_="name", title=shown if len(shown) > 40 else None)


def address(path: str, **query: str | int | None) -> str:
    """A link within the page, with the parameters that are not None."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, quote_via=quote, errors='replace')}" if given else path


def link(target: str, *children: Child, **attributes: str | None) -> Element:
    """A link."""
    return element("a", *children, href=target, **attributes)


def named_link(path: str, key: str, name: str, **query: str | int | None) -> Element:
    """A link to the page of a name; only the name if that is too long."""
    target = address(path, **{key: name}, **query)
    shown = name_of(name)
    return shown if len(target) > MAX_LINKED_CHARACTERS else link(target, shown)


def joined(parts: Iterable[Child], separator: str = ", ") -> list[Child]:
    """The parts with a separator between them."""
    found: list[Child] = []
    for part in parts:
        if found:
            found.append(separator)
        found.append(part)
    return found
