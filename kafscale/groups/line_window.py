"""A limit on the log lines of one group, tighter than that of all lines of a kind (ops/line_limit.py).

It keeps a group that rebalances without end from using up the lines of the others.
"""


class LineWindow:
    """Allows `lines` lines in each window of `window_ms`, and counts those that it omits."""

    __slots__ = ("_began_ms", "_left_out", "_lines", "_window_ms", "_written")

    def __init__(self, lines: int, window_ms: int) -> None:
        self._lines = lines
        self._window_ms = window_ms
        self._began_ms: int | None = None
        self._written = 0
        self._left_out = 0

    def take(self, now_ms: int) -> int | None:
        """Returns how many lines were omitted since the last one that was allowed; None: omit this one, too."""
        if self._began_ms is None or now_ms - self._began_ms >= self._window_ms:
            self._began_ms = now_ms
            self._written = 0
        if self._written == self._lines:
            self._left_out += 1
            return None
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
