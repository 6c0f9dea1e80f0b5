"""Limits on log lines: what clients cause again and again must not fill the disk. Pure."""

from collections.abc import Callable, Hashable
from typing import Final

BURST_LINES: Final = 200
"""So many lines of a kind may come at once; a start or a hand-over writes no more."""

AUDIT_BURST_LINES: Final = 20_000
"""The same for logins and administrators' changes: each is a line, also when all clients connect again at once."""

LINES_PER_SEC: Final = 10.0
"""So many lines of a kind may come for as long as one likes."""

TRACEBACK_LINES: Final = 20
"""A line with a traceback counts as so many."""

MAX_KINDS: Final = 1_000
"""Kinds with a limit of their own; those beyond it share one."""

INTERVAL_SEC: Final = 60.0
"""Between two lines of one kind and client."""


class _Kind:
    """How many lines of the kind may still be written, as of `at_sec`, and how many were left out."""

    __slots__ = ("at_sec", "left_out", "room")

    def __init__(self, now_sec: float, room: float) -> None:
        self.room = room
        self.at_sec = now_sec
        self.left_out = 0


class LineLimit:
    """A token bucket for each kind of line. A kind is what its source says, without what a client says."""

    def __init__(self, burst_lines: int = BURST_LINES) -> None:
        self._burst_lines = float(burst_lines)
        self._kinds: dict[Hashable, _Kind] = {}

    def admit(self, kind: Hashable, now_sec: float, lines: int = 1) -> int | None:
        """Return how many lines of the kind were left out before this one, or None if it is left out, too.

        `now_sec`: a monotonic clock. `lines`: what the line counts for.
        """
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            kind = None
        state = self._kinds.setdefault(kind, _Kind(now_sec, self._burst_lines))
        state.room = min(self._burst_lines, state.room + (now_sec - state.at_sec) * LINES_PER_SEC)
        state.at_sec = now_sec
        if state.room < lines:
            state.left_out += 1
            return None
        state.room -= lines
        left_out, state.left_out = state.left_out, 0
        return left_out


class RepeatedLines:
    """One line a minute for each kind and client, in bounded memory. `now_sec` is a monotonic clock.

    With more clients than it remembers, lines come more often: `LineLimit` applies to all of them then.
    """

    def __init__(self, now_sec: Callable[[], float]) -> None:
        self._now_sec = now_sec
        # When a kind was written last, and how often it was suppressed since; the oldest first.
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}

    def admit(self, kind: tuple[str, str]) -> int | None:
        """Returns how many lines of the kind were suppressed before one that may be written; None: not now."""
        now = self._now_sec()
        written_sec, left_out = self._kinds.get(kind, (now - INTERVAL_SEC, 0))
        if now - written_sec < INTERVAL_SEC:
            self._kinds[kind] = (written_sec, left_out + 1)
            return None
        self._kinds.pop(kind, None)
        self._kinds[kind] = (now, 0)
        if len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return left_out
