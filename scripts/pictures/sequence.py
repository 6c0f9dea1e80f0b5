"""A picture of steps between lanes, from top to bottom.

The text is TOML: `lanes` (names, with a `style` each in `styles`), `lane_width` (pixels), and `[[step]]`s, each
either `from`, `to`, `text` (lines above the arrow) and `style`, or `at` and `text` for a note on one lane.
"""

from collections.abc import Mapping
from typing import Any, Final

from scripts.pictures import svg

HEAD_HEIGHT: Final = 36
GAP: Final = 12


def sequence(picture: Mapping[str, Any], source: str) -> str:
    """The picture as SVG. Raises `KeyError` for a missing field, `ValueError` for a lane that is not there."""
    lanes, lane_width = picture["lanes"], picture["lane_width"]
    middles = [svg.MARGIN + lane_width // 2 + number * lane_width for number in range(len(lanes))]
    y = svg.MARGIN + HEAD_HEIGHT + GAP
    steps = []
    for step in picture["step"]:
        drawn, y = _step(step, lanes, middles, lane_width, y)
        steps.append(drawn)
    heads = [
        svg.line(middle, svg.MARGIN + HEAD_HEIGHT, middle, y, "lane")
        + svg.rectangle(middle - lane_width // 2 + 10, svg.MARGIN, lane_width - 20, HEAD_HEIGHT, style)
        + svg.text(middle, svg.MARGIN + HEAD_HEIGHT // 2 + 5, lane, "title")
        for lane, middle, style in zip(lanes, middles, picture["styles"], strict=True)
    ]
    width = 2 * svg.MARGIN + lane_width * len(lanes)
    return svg.document(source, picture["description"], width, y + svg.MARGIN, [*heads, *steps])


def _step(
    step: Mapping[str, Any], lanes: list[str], middles: list[int], lane_width: int, y: int
) -> tuple[str, int]:
    """One step drawn from `y` on, and where the next one begins."""
    content = step["text"]
    height = len(content) * svg.LINE_HEIGHT
    if "at" in step:
        middle = middles[lanes.index(step["at"])]
        width = step.get("width", lane_width - 20)
        note = svg.rectangle(middle - width // 2, y, width, height + GAP, "note")
        return note + svg.lines_of_text(middle, y + GAP // 2, content, "note"), y + height + 2 * GAP
    start, end = middles[lanes.index(step["from"])], middles[lanes.index(step["to"])]
    label = svg.lines_of_text((start + end) // 2, y, content, "label")
    arrow = svg.line(start, y + height + 4, end, y + height + 4, step.get("style", "to"))
    return arrow + label, y + height + GAP + 8
