"""State of a managed etcd's upkeep between passes; harmless to lose. Pure."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from kafscale.operator.etcd.upkeep_plan import Done

SETTLED: Final = timedelta(seconds=30)
"""No reader of a range or watch is still at a revision that is this old."""

COMPACTION: Final = timedelta(seconds=20)
"""Time that members get for a compaction."""

ALARM_ROUND: Final = timedelta(minutes=30)
"""Interval of defragmentations while an alarm stands: each makes a member unavailable for a moment."""


@dataclass(slots=True)
class EtcdRounds:
    """State of one cluster. Times are aware."""

    done: Done = field(default_factory=Done)
    _round: datetime | None = None
    _compacted: datetime | None = None
    _older: tuple[int, datetime] | None = None
    _newer: tuple[int, datetime] | None = None

    def looked(self, revision: int, now: datetime) -> None:
        """Records that every member has applied the revision."""
        if self._newer is None or now - self._newer[1] >= SETTLED:
            self._older, self._newer = self._newer, (revision, now)

    def settled_revision(self) -> int:
        """A revision that no reader needs; 0 if none is known."""
        return 0 if self._older is None else self._older[0]

    def begin_scheduled(self, scheduled: datetime) -> None:
        """Starts the round of that time, unless it is running."""
        if self._round != scheduled:
            self._round, self.done = scheduled, Done()

    def begin_alarm(self, now: datetime) -> None:
        """Starts a round because of an alarm, unless one is running."""
        if self._round is None or not self._round <= now < self._round + ALARM_ROUND:
            self._round, self.done = now, Done()

    def defragmented(self, member_id: int) -> None:
        """Records an attempted defragmentation in this round."""
        self.done = replace(self.done, members=self.done.members | {member_id})

    def compacted(self, revision: int, now: datetime) -> None:
        """Records an attempted compaction: members have to be defragmented after it."""
        self.done = Done(compacted=revision)
        self._compacted = now

    def is_compacting(self, now: datetime) -> bool:
        """True while it is too early to defragment: the compaction has to free space first."""
        return self._compacted is not None and self._compacted <= now < self._compacted + COMPACTION
