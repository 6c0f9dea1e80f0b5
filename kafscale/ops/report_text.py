"""Text of commands for people: tables, sections of lines that do not get too long, and lines of progress."""

from collections.abc import Callable, Iterable, Iterator, Sequence
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


class PacedLines:
    """Lines of progress, one every `interval_sec` at most; none if the work is done before."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float], interval_sec: float) -> None:
        self._write = write
        self._clock = clock
        self._interval_sec = interval_sec
        self._next = clock() + interval_sec

    def say(self, line: str) -> None:
        """Write the line, if it is time for one."""
        if self._clock() >= self._next:
            self._next = self._clock() + self._interval_sec
            self._write(line)
