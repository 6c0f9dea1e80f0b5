"""The work of a member process, independent of its client: its records, its journal, and its options."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.group_journal import (
    Assigned,
    CommitFailed,
    Committed,
    Committing,
    Journal,
    Processed,
    Revoked,
)

CONSUMER_PROTOCOL = "librdkafka-consumer-protocol"
"""The client librdkafka, with `group.protocol=consumer`."""

POLL_SECONDS = 0.1
RECORDS_PER_COMMIT = 20
SECONDS_PER_COMMIT = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """A member's settings. Timeouts in milliseconds."""

    client: str
    bootstrap: str
    group: str
    topic: str
    name: str
    journal: Path
    assignor: str
    session_timeout_ms: int
    max_poll_interval_ms: int

    @property
    def heartbeat_interval_ms(self) -> int:
        return self.session_timeout_ms // 5


@dataclass(slots=True)
class Work:
    """The partitions of this member and its uncommitted offsets; every change is written to the journal."""

    journal: Journal
    stopping: threading.Event
    owned: set[int] = field(default_factory=set)
    _positions: dict[int, int] = field(default_factory=dict)  # to be committed
    _kept: dict[int, int] = field(default_factory=dict)
    _uncommitted: int = 0
    _committed_at: float = 0.0

    def assigned(self, partitions: Iterable[int], generation: int, member_id: str) -> None:
        new = sorted(partitions)
        self.owned |= set(new)
        self._positions |= {partition: self._kept[partition] for partition in new if partition in self._kept}
        self._kept.clear()
        self.journal.write(
            Assigned(
                time_s=time.monotonic(),
                generation=generation,
                member_id=member_id,
                partitions=tuple(new),
                owned=tuple(sorted(self.owned)),
            )
        )

    def revoked(
        self, partitions: Iterable[int], *, lost: bool = False, keeps_positions: bool = False
    ) -> None:
        """`keeps_positions`: the client resumes partitions that it is assigned again where it was."""
        gone = sorted(partitions)
        self.owned -= set(gone)
        positions = {
            partition: self._positions.pop(partition) for partition in gone if partition in self._positions
        }
        if keeps_positions:
            self._kept |= positions
        self.journal.write(Revoked(time_s=time.monotonic(), partitions=tuple(gone), lost=lost))

    def process(self, partition: int, offset: int, value: bytes | None) -> None:
        assert value is not None
        self.journal.write(
            Processed(time_s=time.monotonic(), partition=partition, offset=offset, value=value.decode())
        )
        self._positions[partition] = offset + 1
        self._uncommitted += 1

    def commit_is_due(self) -> bool:
        late = time.monotonic() - self._committed_at > SECONDS_PER_COMMIT
        return bool(self._positions) and (late or self._uncommitted >= RECORDS_PER_COMMIT)

    def begin_commit(self) -> dict[int, int]:
        """The offsets to commit now, perhaps none. Call `end_commit` with the outcome."""
        offsets = dict(self._positions)
        if offsets:
            self.journal.write(Committing(time_s=time.monotonic(), offsets=offsets))
        self._uncommitted, self._committed_at = 0, time.monotonic()
        return offsets

    def end_commit(self, offsets: dict[int, int], error: object = None) -> None:
        """Without an error it was acknowledged; after one the next commit tries the same offsets, or later ones."""
        now = time.monotonic()
        if error is not None:
            self.journal.write(CommitFailed(time_s=now, offsets=offsets, error=repr(error)))
            return
        self.journal.write(Committed(time_s=now, offsets=offsets))
        for partition, offset in offsets.items():
            if self._positions.get(partition) == offset:
                del self._positions[partition]
