"""The debt of merging: how much waits to be merged, for how long, and how many merges that justifies. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

SOURCES_OF_A_LANE: Final = 100
"""With one merge at a time a debt of so many segments is paid within seconds."""

LATE_SEC: Final = 300.0
"""A merge that waits longer is late, whatever the size of the debt."""

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Waiting:
    segments: int
    size_bytes: int
    since_sec: float


class MergeDebt(Generic[Owner]):
    """Segments that wait to be merged, by partition. `segments`, `size_bytes`: totals, which any thread may read.

    Times are seconds of one clock that only goes forward.
    """

    def __init__(self) -> None:
        self.segments = 0
        self.size_bytes = 0
        self._waiting: dict[Owner, _Waiting] = {}

    def note(self, owner: Owner, segments: int, size_bytes: int, now_sec: float) -> None:
        """So much of a partition waits now; 0 segments: none. It waits since the first note after the last `paid`."""
        before = self._waiting.pop(owner, None)
        if before is not None:
            self.segments -= before.segments
            self.size_bytes -= before.size_bytes
        if segments:
            since_sec = now_sec if before is None else before.since_sec
            self._waiting[owner] = _Waiting(segments, size_bytes, since_sec)
            self.segments += segments
            self.size_bytes += size_bytes

    def paid(self, owner: Owner, segments: int, size_bytes: int, now_sec: float) -> None:
        """So much of a partition was merged; what is left waits since now."""
        before = self._waiting.get(owner)
        self.note(owner, 0, 0, now_sec)
        if before is not None and before.segments > segments:
            self.note(owner, before.segments - segments, max(0, before.size_bytes - size_bytes), now_sec)

    def retain(self, owners: set[Owner]) -> None:
        """Forget every other partition: this broker does not lead it any more."""
        for owner in [one for one in self._waiting if one not in owners]:
            self.note(owner, 0, 0, 0.0)

    def oldest_sec(self, now_sec: float) -> float:
        """How long the partition has waited that has waited longest; 0 if none does. Any thread may ask."""
        since = [one.since_sec for one in tuple(self._waiting.values())]
        return max(0.0, now_sec - min(since)) if since else 0.0


def merges_at_once(segments: int, oldest_sec: float, most: int) -> int:
    """How many merges to make side by side, from 1 to `most`, while so many segments wait for so long."""
    lanes = 1 + segments // SOURCES_OF_A_LANE
    if oldest_sec > LATE_SEC:
        lanes = most
    return max(1, min(lanes, most))
