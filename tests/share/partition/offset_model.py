"""A share partition as a table of single offsets: what the runs must be equal to."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafscale.share.partition.acknowledging import AcknowledgeType
from kafscale.share.partition.runs import RecordState

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


@dataclass(slots=True)
class Record:
    """One offset. `given`: to how many members it was given, in the memory of any leader."""

    state: RecordState
    count: int = 0
    member: str = ""
    until_ms: int = 0


@dataclass(slots=True)
class OffsetModel:
    """`finished`: how the records ended that are below `start`."""

    start: int
    lock_ms: int
    most: int
    records: dict[int, Record] = field(default_factory=dict)
    finished: dict[int, RecordState] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The offset after the last record in flight."""
        return self.start + len(self.records)

    def rows(self) -> list[tuple[int, RecordState, int, str, int]]:
        """Everything that is in flight."""
        return [
            (offset, one.state, one.count, one.member, one.until_ms)
            for offset, one in sorted(self.records.items())
        ]

    def give(self, offset: int, member: str, now_ms: int) -> int:
        """The member acquires the record. Returns the delivery count."""
        record = self.records.setdefault(offset, Record(AVAILABLE))
        assert record.state is AVAILABLE, f"{offset} is {record}"
        record.state, record.member, record.until_ms = ACQUIRED, member, now_ms + self.lock_ms
        record.count += 1
        assert record.count <= self.most, f"{offset} is delivered {record.count} times"
        return record.count

    def finish_gap(self, offset: int) -> None:
        """There is no record at the offset."""
        record = self.records.setdefault(offset, Record(AVAILABLE))
        if record.state is AVAILABLE:
            record.state = ARCHIVED

    def owned_by(self, member: str) -> list[int]:
        """The offsets that the member has."""
        return [offset for offset, one in self._in_flight() if one.state is ACQUIRED and one.member == member]

    def say(self, offset: int, kind: AcknowledgeType, now_ms: int) -> None:
        """The owner acknowledges the record."""
        record = self.records[offset]
        match kind:
            case AcknowledgeType.RENEW:
                record.until_ms = now_ms + self.lock_ms
            case AcknowledgeType.RELEASE:
                self.give_back(offset)
            case AcknowledgeType.ACCEPT:
                self.records[offset] = Record(ACKNOWLEDGED, record.count)
            case AcknowledgeType.REJECT | AcknowledgeType.GAP:
                self.records[offset] = Record(ARCHIVED, record.count)

    def give_back(self, offset: int) -> None:
        """The record is available again, if it may be delivered once more."""
        count = self.records[offset].count
        self.records[offset] = Record(ARCHIVED if count >= self.most else AVAILABLE, count)

    def late(self, now_ms: int) -> list[int]:
        """The offsets whose locks have ended."""
        return [
            offset for offset, one in self._in_flight() if one.state is ACQUIRED and one.until_ms <= now_ms
        ]

    def advance(self) -> None:
        """Move the start behind what is finished."""
        while (one := self.records.get(self.start)) and one.state in (ACKNOWLEDGED, ARCHIVED):
            self.finished[self.start] = self.records.pop(self.start).state
            self.start += 1

    def _in_flight(self) -> Iterator[tuple[int, Record]]:
        return iter(sorted(self.records.items()))
