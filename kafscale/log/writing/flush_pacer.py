"""Decides when a broker writes the journal's next entry. Pure.

An entry costs one PUT, whatever is in it. So one is begun at once while none is in flight and the budget of PUTs
allows it: with little traffic an acknowledgement waits for one PUT. What comes meanwhile gathers, until the oldest of
it is as old as the flush interval, or there is enough of it that another entry is worth its PUT.

An entry whose records are too old to wait for those in flight begins a while after the last one: `SPACING` of a usual
PUT for each in flight. Entries are acknowledged in their order. Without the space four would begin at once, wait for
the same slow PUT, and make what comes meanwhile wait, too. So the space costs no time, and saves PUTs
(docs/decisions/0098-entries-are-spaced.md).

A producer that is acknowledged sends its next batches a moment later. Without a pause for them the entries of a
producer with five requests in flight would have one batch, four, one, four. So after an entry has ended, the next one
begins once as many batches wait as that one had and as waited beside it (group commit), or after `GATHER_SEC`.
"""

import math
from dataclasses import dataclass
from typing import Final

SAVED_SEC: Final = 10.0
"""So many seconds' worth of PUTs can be saved up while there is nothing to flush."""

GATHER_SEC: Final = 0.002
"""So long at most batches that are expected after an acknowledgement are waited for."""

ENOUGH_BATCHES: Final = 16
"""An entry of so many is not made cheaper by a pause for more: the cost of their requests is larger than its own."""

ENOUGH_BYTES: Final = 256 * 1024
"""Neither is one of so many bytes, which had better be written while others arrive."""

SPACING: Final = 0.35
"""Of the time that a usual PUT takes, for each entry in flight: the next one begins so long after the last one."""

_SHORTEST_SEC: Final = 0.001
_STEP: Final = 0.05
"""So much the usual PUT changes with each, towards the one that was seen."""

_ROUNDING: Final = 1e-6
"""Of one PUT. A wait for less would be over before the clock shows it, and so would the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPolicy:
    """`interval_ms`: the age at which waiting records are flushed; 0: at once. `entry_bytes`: the size at which.

    `flushes_per_sec`: how many entries are begun before either on average; infinity: no limit. `in_flight`: the
    limit on entries in flight.
    """

    interval_ms: int
    entry_bytes: int
    flushes_per_sec: float
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Records that wait to be flushed: since when the oldest do, how many bytes, and if they can wait no longer."""

    since_ms: int
    size_bytes: int
    batches: int = 1
    is_urgent: bool = False


class FlushPacer:
    """The budget of one broker. `now_sec`: by a clock that does not go back; `now_ms`: of the appends."""

    __slots__ = (
        "_began_at_sec",
        "_counted_at_sec",
        "_expected_batches",
        "_gathers_until_sec",
        "_held_since_sec",
        "_is_gathering",
        "_is_spacing",
        "_policy",
        "_saved",
        "_usual_put_sec",
    )

    def __init__(self, policy: FlushPolicy, now_sec: float) -> None:
        self._policy = policy
        self._saved = policy.flushes_per_sec * SAVED_SEC
        self._counted_at_sec = now_sec
        self._held_since_sec: float | None = None
        self._gathers_until_sec = now_sec
        self._expected_batches = 0
        self._is_gathering = False
        self._began_at_sec = now_sec
        self._usual_put_sec = 0.0
        self._is_spacing = False

    def delay_sec(self, waiting: Waiting, in_flight: int, now_sec: float, now_ms: int) -> float | None:
        """Seconds until the next entry begins if nothing changes; 0 for now, None for when one has ended."""
        policy = self._policy
        self._is_gathering = self._is_spacing = False
        if in_flight >= policy.in_flight:
            return None
        if waiting.is_urgent or waiting.size_bytes >= policy.entry_bytes:
            return 0.0
        age_ms = now_ms - waiting.since_ms
        # A clock that was set back: nothing waits until it has caught up.
        until_old_sec = (policy.interval_ms - age_ms) / 1000 if 0 <= age_ms < policy.interval_ms else 0.0
        if in_flight:
            until_spaced_sec = self._until_spaced_sec(waiting, in_flight, now_sec)
            self._is_spacing = until_spaced_sec > until_old_sec
            return max(until_old_sec, until_spaced_sec)
        if policy.interval_ms and not until_old_sec:
            return 0.0
        until_gathered_sec = self._until_gathered_sec(waiting, now_sec)
        self._is_gathering = until_gathered_sec > 0
        if not policy.interval_ms:
            return until_gathered_sec
        until_allowed_sec = self._until_allowed_sec(now_sec)
        if until_allowed_sec and self._held_since_sec is None:
            self._held_since_sec = now_sec
        return min(until_old_sec, max(until_allowed_sec, until_gathered_sec))

    def ended(self, batches: int, waiting_batches: int, now_sec: float) -> None:
        """An entry with `batches` was acknowledged while `waiting_batches` waited for the next one."""
        self._expected_batches = min(batches + waiting_batches, ENOUGH_BATCHES)
        self._gathers_until_sec = now_sec + GATHER_SEC

    def put_took(self, seconds: float) -> None:
        """An entry's PUT was answered after that time: the median of such times is what is usual."""
        if not self._usual_put_sec:
            self._usual_put_sec = seconds
        elif seconds != self._usual_put_sec:
            self._usual_put_sec *= 1 + _STEP if seconds > self._usual_put_sec else 1 - _STEP

    def may_be_due(self, size_bytes: int, batches: int) -> bool:
        """False if the next entry begins no earlier for what was added to a partition that waits already."""
        return (
            size_bytes >= self._policy.entry_bytes
            or (self._is_gathering and self._is_gathered(size_bytes, batches))
            or (self._is_spacing and size_bytes >= ENOUGH_BYTES)
        )

    def _until_spaced_sec(self, waiting: Waiting, in_flight: int, now_sec: float) -> float:
        if waiting.size_bytes >= ENOUGH_BYTES:
            return 0.0
        missing_sec = self._began_at_sec + SPACING * in_flight * self._usual_put_sec - now_sec
        # A wait for less would be over before a timer shows it.
        return missing_sec if missing_sec >= _SHORTEST_SEC else 0.0

    def _is_gathered(self, size_bytes: int, batches: int) -> bool:
        return batches >= self._expected_batches or size_bytes >= ENOUGH_BYTES

    def _until_gathered_sec(self, waiting: Waiting, now_sec: float) -> float:
        if self._is_gathered(waiting.size_bytes, waiting.batches):
            return 0.0
        return max(0.0, self._gathers_until_sec - now_sec)

    def began(self, now_sec: float) -> float:
        """An entry was begun, for whatever reason: it takes a PUT of those that are saved up.

        Returns the seconds for which only the budget had kept it from beginning.
        """
        self._count(now_sec)
        self._began_at_sec = now_sec
        self._saved = max(0.0, self._saved - 1)
        held_since_sec, self._held_since_sec = self._held_since_sec, None
        return 0.0 if held_since_sec is None else now_sec - held_since_sec

    def _until_allowed_sec(self, now_sec: float) -> float:
        rate = self._policy.flushes_per_sec
        if math.isinf(rate):
            return 0.0
        self._count(now_sec)
        missing = 1 - self._saved
        if missing < _ROUNDING:
            return 0.0
        return missing / rate if rate else math.inf

    def _count(self, now_sec: float) -> None:
        rate = self._policy.flushes_per_sec
        if not math.isinf(rate):
            self._saved = min(self._saved + (now_sec - self._counted_at_sec) * rate, rate * SAVED_SEC)
        self._counted_at_sec = now_sec
