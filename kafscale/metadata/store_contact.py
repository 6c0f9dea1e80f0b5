"""When the metadata store last answered this broker, by a clock of this process. For liveness, never for correctness.

A broker that hears nothing from the store knows neither whether it still leads nor who else lives. The renewals of
its lease ask often enough for silence to mean something.
"""

from collections.abc import Callable

SETTLING_MS = 10_000
"""After a silence: what it has done to leases shows within this time, on a busy machine, too."""


class StoreContact:
    """The answers of one store. `now_ms`: of a clock that is never set, and `heard` by any thread's reader."""

    def __init__(self, lease_ttl_ms: int, now_ms: Callable[[], int]) -> None:
        self._lease_ttl_ms = lease_ttl_ms
        self._now_ms = now_ms
        self._answered_ms = now_ms()
        self._silence_ended_ms: int | None = None

    def now_ms(self) -> int:
        """To be taken before a question, for `answered`."""
        return self._now_ms()

    def answered(self, asked_ms: int) -> None:
        """The store has answered a question that was asked then."""
        if asked_ms <= self._answered_ms:
            return
        if self.is_doubtful_silence(self._now_ms() - self._answered_ms):
            self._silence_ended_ms = self._now_ms()
        self._answered_ms = asked_ms

    def is_doubtful_silence(self, silent_ms: int) -> bool:
        """True if so long a silence may have cost other brokers their leases, which they renew like this one."""
        return 2 * silent_ms >= self._lease_ttl_ms

    @property
    def answered_ms(self) -> int:
        """When the newest question was asked that has an answer."""
        return self._answered_ms

    @property
    def silent_ms(self) -> int:
        """How long ago the newest question was asked that has an answer."""
        return self._now_ms() - self._answered_ms

    @property
    def is_lost(self) -> bool:
        """True if the silence has lasted for a lease's time: this broker's own may have ended."""
        return not self.is_recent(self._answered_ms)

    def is_recent(self, at_ms: int) -> bool:
        """True if less than a lease's time has passed since then."""
        return self._now_ms() - at_ms < self._lease_ttl_ms

    @property
    def was_interrupted(self) -> bool:
        """True if the store is silent, or was until a moment ago: what it cost other brokers shows about now."""
        if self.is_doubtful_silence(self.silent_ms):
            return True
        ended_ms = self._silence_ended_ms
        return ended_ms is not None and self._now_ms() - ended_ms < self._lease_ttl_ms + SETTLING_MS
