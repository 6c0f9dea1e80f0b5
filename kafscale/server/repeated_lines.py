"""Which log lines that strangers can cause are written: each kind seldom, and all of them within a limit."""

from collections.abc import Callable
from typing import Final

# A line of one kind is written once in this time, with the number of those that were left out.
INTERVAL_SEC: Final = 60.0
# Lines of all kinds: so many at once, and so many a second in the long run.
BURST_LINES: Final = 100
LINES_PER_SEC: Final = 1.0
_MAX_KINDS: Final = 1000


class RepeatedLines:
    """Remembers what was written lately. Memory is bounded; `now_sec` is a monotonic clock."""

    def __init__(self, now_sec: Callable[[], float]) -> None:
        self._now_sec = now_sec
        # When a kind was written last, and how often it was left out since.
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        self._left_lines: float = BURST_LINES
        self._refilled_sec = now_sec()

    def admit(self, kind: tuple[str, str]) -> int | None:
        """How many lines of this kind were left out before the one that may be written now; None for not now."""
        now = self._now_sec()
        written_sec, left_out = self._kinds.get(kind, (now - INTERVAL_SEC, 0))
        if now - written_sec < INTERVAL_SEC or not self._take_line(now):
            self._kinds[kind] = (written_sec, left_out + 1)
            self._forget_oldest()
            return None
        # At the end of the dictionary: the one that was written longest ago is forgotten first.
        self._kinds.pop(kind, None)
        self._kinds[kind] = (now, 0)
        self._forget_oldest()
        return left_out

    def _take_line(self, now: float) -> bool:
        refill = (now - self._refilled_sec) * LINES_PER_SEC
        self._left_lines = min(BURST_LINES, self._left_lines + refill)
        self._refilled_sec = now
        if self._left_lines < 1:
            return False
        self._left_lines -= 1
        return True

    def _forget_oldest(self) -> None:
        while len(self._kinds) > _MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
