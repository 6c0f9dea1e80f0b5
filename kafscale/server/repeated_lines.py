"""A limit for log lines that one client can cause again and again: one of a kind a minute."""

from collections.abc import Callable
from typing import Final

INTERVAL_SEC: Final = 60.0
_MAX_KINDS: Final = 1000


class RepeatedLines:
    """Remembers the lines written lately, in bounded memory. `now_sec` is a monotonic clock.

    With more clients than it remembers, lines come more often: the log handler's limit for all of them applies then
    (`kafscale.ops.line_limit`).
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
        if len(self._kinds) > _MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        return left_out
