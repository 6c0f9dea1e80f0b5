"""The events of a simulated run, in order: for people who look for a mistake, and to compare two runs."""

import asyncio
from collections.abc import Iterable
from typing import Any

SHOWN = 120
"""So many of the last events are shown with a mistake."""


class Trace:
    """Events as tuples; their text is made only when somebody wants to read it."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._loop = asyncio.get_running_loop()

    def add(self, who: str, *what: Any) -> None:
        """`what`: words and plain values."""
        self.events.append((self._loop.time(), who, *what))

    def text(self, last: int = SHOWN) -> str:
        """The last events, one a line."""
        shown = self.events[-last:]
        lines = [_line(event) for event in shown]
        if len(shown) < len(self.events):
            lines.insert(0, f"... {len(self.events) - len(shown)} events before")
        return "\n".join(lines)


def _line(event: Iterable[Any]) -> str:
    time_sec, who, *what = event
    return f"{time_sec:9.3f} {who:<12} " + " ".join(map(_word, what))


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f} s"
    return str(value)
