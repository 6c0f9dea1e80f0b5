"""The few SVG elements that the pictures are made of, as text."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

FONT_SIZE: Final = 14
LINE_HEIGHT: Final = 20
MARGIN: Final = 20

_STYLE: Final = """\
  <style>
    text { font: 14px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1f2933; }
    .title { font-weight: bold; }
    .label, .note { font-size: 12px; fill: #3e4c59; }
    .label { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
    rect { fill: #f5f7fa; stroke: #7b8794; }
    rect.broker { fill: #d9f0e6; stroke: #2f8463; }
    rect.store { fill: #fdeecb; stroke: #b7791f; }
    rect.note { fill: #ffffff; stroke: #cbd2d9; }
    rect.page { fill: #ffffff; stroke: none; }
    line { stroke: #52606d; stroke-width: 1.5; marker-end: url(#head); }
    line.both { marker-start: url(#tail); }
    line.reply, line.aside { stroke-dasharray: 5 4; }
    line.lane { stroke: #cbd2d9; marker-end: none; }
  </style>
  <defs>
    <marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
      <path d="M0,0 L8,4 L0,8 z" fill="#52606d"/>
    </marker>
    <marker id="tail" viewBox="0 0 8 8" refX="0" refY="4" markerWidth="8" markerHeight="8" orient="auto">
      <path d="M8,0 L0,4 L8,8 z" fill="#52606d"/>
    </marker>
  </defs>
"""


def document(source: str, description: str, width: int, height: int, elements: Iterable[str]) -> str:
    """A whole SVG file. `source` is the file that the picture is made from."""
    return (
        f"<!-- Made from {source} by `make docs`. -->\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">\n'
        f"  <title>{escape(description)}</title>\n{_STYLE}"
        f"{rectangle(0, 0, width, height, 'page')}"
        f"{''.join(elements)}</svg>\n"
    )


def rectangle(x: int, y: int, width: int, height: int, style: str) -> str:
    """A box with its upper left corner at `x`, `y`."""
    rounded = "" if style == "page" else ' rx="6"'
    return f'  <rect class="{style}" x="{x}" y="{y}" width="{width}" height="{height}"{rounded}/>\n'


def line(x1: int, y1: int, x2: int, y2: int, style: str) -> str:
    """A straight line, by default with an arrow head at its end."""
    return f'  <line class="{style}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>\n'


def text(x: int, y: int, content: str, style: str, anchor: str = "middle") -> str:
    """One line of text with its baseline at `y`."""
    return f'  <text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(content)}</text>\n'


def lines_of_text(x: int, top: int, contents: Sequence[str], style: str, anchor: str = "middle") -> str:
    """Lines one below the other; the first one's line begins at `top`."""
    return "".join(
        text(x, top + FONT_SIZE + number * LINE_HEIGHT, content, style, anchor)
        for number, content in enumerate(contents)
    )
