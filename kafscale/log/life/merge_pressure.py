"""How many merges the broker and its store bear beside their clients: fewer as soon as merging slows requests. Pure.

Theory of operation, after TCP Vegas. Each merge times one small write of its own, which waits where flushes wait: on
the event loop, for a thread or a request slot, in the store. Its smoothed time is compared with the smallest one
of the last minutes. While they are near each other one more merge is allowed after each round of merges; where the
time is half as long again, half as many are. So merging uses what is free, and where nothing is free one merge is
made at a time.
"""

from typing import Final

SLACK_SEC: Final = 0.005
"""A difference of so much is no sign of pressure: a disk's or a scheduler's moods."""

# With these a bucket's usual spread of times (p99 at five times the median) allows all but a few merges, and a store
# that is full with six gets eight.
_LONGER: Final = 1.5
_SMOOTHING: Final = 0.05
_FORGET_AFTER: Final = 2000


class MergePressure:
    """The number of merges to allow, from 1 to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.allowed = 1
        self._smoothed_sec: float | None = None
        self._smallest_sec = 0.0
        # The smallest since the last time that an older one was forgotten, and how many writes ago that was.
        self._smallest_lately_sec = 0.0
        self._since_forgotten = 0
        self._since_change = 0

    def observe(self, seconds: float) -> None:
        """Take the time of a write."""
        before = self._smoothed_sec
        now = seconds if before is None else before + _SMOOTHING * (seconds - before)
        self._smoothed_sec = now
        if before is None:
            self._smallest_sec = self._smallest_lately_sec = now
        self._smallest_lately_sec = min(self._smallest_lately_sec, now)
        self._smallest_sec = min(self._smallest_sec, now)
        self._since_forgotten += 1
        if self._since_forgotten == _FORGET_AFTER:
            self._smallest_sec, self._smallest_lately_sec = self._smallest_lately_sec, now
            self._since_forgotten = 0
        self._since_change += 1
        if self._since_change < self.allowed:
            return  # The effect of the last change is not seen yet.
        self._since_change = 0
        if now > _LONGER * self._smallest_sec + SLACK_SEC:
            self.allowed = max(1, self.allowed // 2)
        else:
            self.allowed = min(self._most, self.allowed + 1)
