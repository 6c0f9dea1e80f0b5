"""How reports for people are laid out: tables, and sections of lines that do not get too long. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

MOST_LINES: Final = 20
"""Lines of one kind that the text shows; the JSON has all of them."""


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows as lines, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        yield "  ".join(cells).rstrip()


def time_text(unix_ms: int) -> str:
    """A time as people read it: UTC, to the second."""
    return datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def section(title: str, lines: Iterable[str]) -> list[str]:
    """A title with the lines below it, the first of them; nothing when there are none."""
    found = list(lines)
    if not found:
        return []
    shown = [f"  {line}" for line in found[:MOST_LINES]]
    if len(found) > MOST_LINES:
        shown.append(f"  and {len(found) - MOST_LINES} more: --json shows all")
    return ["", f"{title}:", *shown]
