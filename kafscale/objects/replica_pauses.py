"""When a replica that failed is asked again: after pauses that grow for as long as it keeps failing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePolicy:
    """`first_ms` and `last_ms`: the shortest pause and the longest; each is twice the one before."""

    first_ms: int = 1_000
    last_ms: int = 60_000


class ReplicaPauses:
    """True if the replica is read from, is skipped, or is due for a question.

    Times are milliseconds of one clock that never goes back. A pause begins with a failure. Reads that were
    started before it began, and fail as well, are no news.
    """

    def __init__(self, policy: PausePolicy) -> None:
        self._policy = policy
        self._pause_ms = 0  # the last one
        self._since_ms = 0  # when the last one began or ended
        self._retry_ms: int | None = None  # when the present one is over
        self._is_asked = False

    @property
    def is_passed_over(self) -> bool:
        """True if it is not read from."""
        return self._retry_ms is not None

    def failed(self, started_ms: int, now_ms: int, jitter: float) -> bool:
        """A read failed. True when a pause begins with that. `jitter`: what the pause is multiplied by."""
        if self.is_passed_over or started_ms < self._since_ms:
            return False
        if now_ms - self._since_ms > self._policy.last_ms:
            self._pause_ms = 0  # It was well for long.
        self._pause(now_ms, jitter)
        return True

    def ask(self, now_ms: int) -> bool:
        """True if it is due for a question now: the caller asks it, and calls `answered` or `silent`."""
        if self._retry_ms is None or now_ms < self._retry_ms or self._is_asked:
            return False
        self._is_asked = True
        return True

    def answered(self, now_ms: int) -> None:
        """It is back: it is read from again."""
        self._is_asked = False
        self._retry_ms = None
        self._since_ms = now_ms

    def silent(self, now_ms: int, jitter: float) -> None:
        """It is not back; the next pause begins."""
        self._is_asked = False
        self._pause(now_ms, jitter)

    def _pause(self, now_ms: int, jitter: float) -> None:
        policy = self._policy
        self._pause_ms = min(max(self._pause_ms * 2, policy.first_ms), policy.last_ms)
        self._since_ms = now_ms
        self._retry_ms = now_ms + int(self._pause_ms * jitter)
