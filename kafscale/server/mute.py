"""A connection that is muted: nothing more is handled from it until a throttle time is over (KIP-219)."""

import asyncio
from collections.abc import Callable

from kafscale.ops.metrics import ConnectionMetrics


class Mute:
    """`is_on`: the connection's gate is closed. `on_over` is called when it may open."""

    __slots__ = ("_counts", "_loop", "_on_over", "_timer", "_until_sec", "is_on")

    def __init__(self, counts: ConnectionMetrics, on_over: Callable[[], None]) -> None:
        self._counts = counts
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._until_sec = 0.0
        self.is_on = False

    @property
    def remaining_ms(self) -> int:
        """How much longer, in milliseconds; 0 if the connection is not muted."""
        return max(1, round((self._until_sec - self._loop.time()) * 1000)) if self.is_on else 0

    def extend(self, delay_ms: int) -> None:
        """Mute for so long, from now on; no shorter than before."""
        until_sec = self._loop.time() + delay_ms / 1000
        if self.is_on and until_sec <= self._until_sec:
            return
        self._until_sec = until_sec
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(until_sec, self._over)
        if not self.is_on:
            self.is_on = True
            self._counts.muted += 1

    def close(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_on:
            self.is_on = False
            self._counts.muted -= 1

    def _over(self) -> None:
        self.close()
        self._on_over()
