"""What is remembered of a managed etcd between two passes: nothing that would do harm if it were forgotten. Pure."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from kafscale.operator.etcd.upkeep_plan import Done

SETTLED: Final = timedelta(seconds=30)
"""Nobody reads a page of a range, or resumes a watch, so long after a revision without having come further."""

COMPACTION: Final = timedelta(seconds=20)
"""So long members are given to forget what they are to forget."""

ALARM_ROUND: Final = timedelta(minutes=30)
"""While an alarm stands members are defragmented once in so long: each time they are away for a moment."""


@dataclass(slots=True)
class EtcdRounds:
    """Of one cluster. Times are aware."""

    done: Done = field(default_factory=Done)
    _round: datetime | None = None
    _compacted: datetime | None = None
    _older: tuple[int, datetime] | None = None
    _newer: tuple[int, datetime] | None = None

    def looked(self, revision: int, now: datetime) -> None:
        """Every member had applied that revision."""
        if self._newer is None or now - self._newer[1] >= SETTLED:
            self._older, self._newer = self._newer, (revision, now)

    def settled_revision(self) -> int:
        """One that is long past; 0 where none is known."""
        return 0 if self._older is None else self._older[0]

    def begin_scheduled(self, scheduled: datetime) -> None:
        """A round of that time; nothing if it is the one that runs."""
        if self._round != scheduled:
            self._round, self.done = scheduled, Done()

    def begin_alarm(self, now: datetime) -> None:
        """A round because of an alarm; nothing while one runs."""
        if self._round is None or not self._round <= now < self._round + ALARM_ROUND:
            self._round, self.done = now, Done()

    def defragmented(self, member_id: int) -> None:
        """Or tried to, in this round."""
        self.done = replace(self.done, members=self.done.members | {member_id})

    def compacted(self, revision: int, now: datetime) -> None:
        """Or tried to, in this round: members have to be defragmented after it."""
        self.done = Done(compacted=revision)
        self._compacted = now

    def is_compacting(self, now: datetime) -> bool:
        """Whether it is too early to defragment: nothing is won before history is gone."""
        return self._compacted is not None and self._compacted <= now < self._compacted + COMPACTION
