"""The parts that pages are made of: tables, tiles, cards, bars, lines. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.pages.markup import Child, Element, address, element, link

ROWS_PER_PAGE: Final = 100
_LINE_WIDTH: Final = 200
_LINE_HEIGHT: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column. `is_wide`: left out on a narrow screen. `sort`: the link that sorts by it, if there is one."""

    title: str
    is_number: bool = False
    is_wide: bool = False
    sort: str | None = None
    is_sorted: bool = False


def text(title: str, *, wide: bool = False) -> Column:
    """A column of texts."""
    return Column(title=title, is_wide=wide)


def number(title: str, *, wide: bool = False) -> Column:
    """A column of numbers."""
    return Column(title=title, is_number=True, is_wide=wide)


def table(columns: Sequence[Column], rows: Iterable[Sequence[Child]], *, empty: str) -> Element:
    """A table; `empty` stands in its place if there are no rows."""
    body = [
        element("tr", *(_cell(column, cell) for column, cell in zip(columns, row, strict=True)))
        for row in rows
    ]
    if not body:
        return element("p", empty, class_="note")
    head = element("thead", element("tr", *map(_heading, columns)))
    made = element("table", head, element("tbody", *body))
    return element("div", made, class_="scroll", tabindex="0", role="group")


def _heading(column: Column) -> Element:
    title: Child = column.title if column.sort is None else link(column.sort, column.title)
    order = "descending" if column.is_number else "ascending"
    return element(
        "th", title, scope="col", class_=_class(column), aria_sort=order if column.is_sorted else None
    )


def _cell(column: Column, cell: Child) -> Element:
    return element("td", cell, class_=_class(column))


def _class(column: Column) -> str | None:
    names = ["n"] * column.is_number + ["wide"] * column.is_wide
    return " ".join(names) or None


def card(title: str, *children: Child, note: Child = None) -> Element:
    """A part of a page under a heading."""
    beside = None if note is None else element("span", note, class_="note")
    return element("section", element("div", element("h2", title), beside, class_="head"), *children)


def tile(label: str, value: Child, under: Child = None, below: Child = None) -> Element:
    """One figure."""
    return element(
        "div",
        element("div", label, class_="label"),
        element("div", value, class_="value"),
        None if under is None else element("div", under, class_="sub"),
        below,
        class_="tile",
    )


def tiles(*children: Child, in_fours: bool = False) -> Element:
    """Figures side by side. `in_fours`: four in a row where there is room, not as many as fit."""
    return element("div", *children, class_="tiles four" if in_fours else "tiles")


def pair(*children: Child) -> Element:
    """Cards side by side where there is room."""
    return element("div", *children, class_="pair")


def facts(rows: Iterable[tuple[str, Child]]) -> Element:
    """Names and values."""
    cells = [cell for name, value in rows for cell in (element("dt", name), element("dd", value))]
    return element("dl", *cells)


def badge(label: str, kind: str = "") -> Element:
    """A word on a ground; `kind`: `good`, `warn`, `bad`, or empty."""
    return element("span", label, class_=f"badge {kind}".strip())


def alert(kind: str, *children: Child) -> Element:
    """Something that must be seen: `warn` or `bad`."""
    return element("div", *children, class_=f"alert {kind}", role="status")


def bar(part: float, whole: float, label: str) -> Element | None:
    """A share as a bar; None if there is no whole."""
    if whole <= 0:
        return None
    width = max(0.0, min(100.0, 100 * part / whole))
    filled = element("rect", width=f"{width:.1f}", height="8", rx="0")
    return element(
        "svg",
        element("title", label),
        filled,
        class_="bar",
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        role="img",
    )


def line(values: Sequence[tuple[float, float]], label: str) -> Element | None:
    """Values by time as a line from 0 up; None for fewer than three."""
    if len(values) < 3:
        return None
    first, last = values[0][0], values[-1][0]
    highest = max(value for _, value in values) or 1.0
    points = " ".join(
        f"{(at - first) / max(last - first, 1e-9) * _LINE_WIDTH:.1f},"
        f"{_LINE_HEIGHT - 2 - value / highest * (_LINE_HEIGHT - 4):.1f}"
        for at, value in values
    )
    return element(
        "svg",
        element("title", label),
        element("polyline", points=points),
        viewBox=f"0 0 {_LINE_WIDTH} {_LINE_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
    )


def last_page(total: int) -> int:
    """The number of the last page of so many rows, from 1 on."""
    return max(1, -(-total // ROWS_PER_PAGE))


def first_row(page: int, total: int) -> int:
    """The first row of a page, or of the last one if there are fewer pages."""
    return (min(page, last_page(total)) - 1) * ROWS_PER_PAGE


def pages(path: str, page: int, total: int, what: str, **query: str | int | None) -> Element | None:
    """Links to the pages beside this one; None if there is one page."""
    last = last_page(total)
    if last == 1:
        return None
    here = min(page, last)
    start = (here - 1) * ROWS_PER_PAGE
    shown = f"{start + 1:,}-{min(total, start + ROWS_PER_PAGE):,} of {total:,} {what}"
    targets = (("First", 1, here > 2), ("Previous", here - 1, here > 1))
    later = (("Next", here + 1, here < last), ("Last", last, here < last - 1))
    return element(
        "div",
        *(link(address(path, **query, page=at), name) for name, at, is_there in targets if is_there),
        element("span", shown, class_="soft"),
        *(link(address(path, **query, page=at), name) for name, at, is_there in later if is_there),
        class_="pages",
    )
