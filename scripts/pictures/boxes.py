"""A picture of boxes with straight arrows between them, from places that its text gives.

The text is TOML: `[[box]]` with `name`, `at` and `size` (units of 20 pixels), `lines` (the first is the title) and
`style`; `[[arrow]]` with `from`, `to`, `label` (lines), `style`, and `shift` (units) off the middle of the sides
that face each other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from scripts.pictures import svg

UNIT: Final = 20


@dataclass(frozen=True, slots=True)
class _Box:
    left: int
    top: int
    right: int
    bottom: int
    lines: tuple[str, ...]
    style: str


def boxes(picture: Mapping[str, Any], source: str) -> str:
    """The picture as SVG. Raises `KeyError` for a missing field, `ValueError` for an arrow that is not straight."""
    made = {box["name"]: _box(box) for box in picture["box"]}
    width = max(box.right for box in made.values()) + svg.MARGIN
    height = max(box.bottom for box in made.values()) + svg.MARGIN
    elements = [*map(_drawn, made.values())]
    elements += [part for arrow in picture.get("arrow", ()) for part in _arrow(arrow, made)]
    return svg.document(source, picture["description"], width, height, elements)


def _box(box: Mapping[str, Any]) -> _Box:
    (left, top), (width, height) = box["at"], box["size"]
    left, top = svg.MARGIN + left * UNIT, svg.MARGIN + top * UNIT
    return _Box(
        left,
        top,
        left + width * UNIT,
        top + height * UNIT,
        tuple(box["lines"]),
        box.get("style", "outside"),
    )


def _drawn(box: _Box) -> str:
    middle = (box.left + box.right) // 2
    top = (box.top + box.bottom - len(box.lines) * svg.LINE_HEIGHT) // 2
    title, *rest = box.lines
    return (
        svg.rectangle(box.left, box.top, box.right - box.left, box.bottom - box.top, box.style)
        + svg.lines_of_text(middle, top, [title], "title")
        + svg.lines_of_text(middle, top + svg.LINE_HEIGHT, rest, "note")
    )


def _arrow(arrow: Mapping[str, Any], made: Mapping[str, _Box]) -> Iterator[str]:
    start, end = made[arrow["from"]], made[arrow["to"]]
    shift = arrow.get("shift", 0) * UNIT
    x1, y1, x2, y2 = _line(start, end, shift)
    yield svg.line(x1, y1, x2, y2, arrow.get("style", "to"))
    label = arrow.get("label", ())
    if y1 == y2:
        top = y1 - 4 - len(label) * svg.LINE_HEIGHT
        yield svg.lines_of_text((x1 + x2) // 2, top, label, "label")
    else:
        top = (y1 + y2 - len(label) * svg.LINE_HEIGHT) // 2
        yield svg.lines_of_text(x1 + 8, top, label, "label", "start")


def _line(start: _Box, end: _Box, shift: int) -> tuple[int, int, int, int]:
    """Across the gap between two boxes, in the middle of what they share of each other's sides."""
    top, bottom = max(start.top, end.top), min(start.bottom, end.bottom)
    if top < bottom:
        y = (top + bottom) // 2 + shift
        return (start.right, y, end.left, y) if start.right <= end.left else (start.left, y, end.right, y)
    left, right = max(start.left, end.left), min(start.right, end.right)
    if left >= right:
        raise ValueError(f"no side of {start.lines[0]!r} faces {end.lines[0]!r}")
    x = (left + right) // 2 + shift
    return (x, start.bottom, x, end.top) if start.bottom <= end.top else (x, start.top, x, end.bottom)
