"""A bound on what one group logs about itself, tighter than that of all lines of a kind (ops/line_limit.py).

So a group that rebalances without end does not take the lines of the others.
"""


class LineWindow:
    """Allows `lines` within each window of `window_ms`, and counts what it leaves out."""

    __slots__ = ("_began_ms", "_left_out", "_lines", "_window_ms", "_written")

    def __init__(self, lines: int, window_ms: int) -> None:
        self._lines = lines
        self._window_ms = window_ms
        self._began_ms: int | None = None
        self._written = 0
        self._left_out = 0

    def take(self, now_ms: int) -> int | None:
        """How many lines were left out since the last one that was allowed; None: leave this one out, too."""
        if self._began_ms is None or now_ms - self._began_ms >= self._window_ms:
            self._began_ms = now_ms
            self._written = 0
        if self._written == self._lines:
            self._left_out += 1
            return None
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
