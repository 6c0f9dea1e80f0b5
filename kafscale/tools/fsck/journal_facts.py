"""One look at a journal, held against itself and against the records that need it. Pure.

Theory of operation. Partitions' records are read first, then journals' records, then the objects are listed, their
heads are read, and journals' records are read again. An entry is there before any record says so, and is deleted only
after the progress has passed it; a later entry stays that says so. So by the earlier record something must have been
listed, and by the later one a gap may have been collected. What lies in an entry never changes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from kafscale.formats.journal_entry import EntryHead, EntrySlice
from kafscale.formats.journal_keys import entry_key
from kafscale.formats.journal_record import JournalRecord
from kafscale.formats.partition_record import SegmentReference
from kafscale.journal.collection import collectable
from kafscale.log.journal.needs import EntrySummary
from kafscale.tools.fsck.findings import Finding, FindingKind


@dataclass(slots=True, kw_only=True)
class JournalFacts:
    """A journal at one look. `before`, `after`: its record, read before the listing and after the heads.

    `sizes`: of the objects that were listed, by sequence. `entries`: those whose head could be read. `damaged`: what
    is wrong with others. `positions`: of records that go on in this journal, by partition. `is_named`: a record needs
    the journal. `is_live`: a broker is registered with it, as read last.
    """

    namespace: str
    journal_id: str
    before: JournalRecord | None
    after: JournalRecord | None
    sizes: Mapping[int, int]
    entries: dict[int, EntrySummary] = field(default_factory=dict)
    fences: set[int] = field(default_factory=set)
    damaged: dict[int, str] = field(default_factory=dict)
    slice_count: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    is_named: bool = False
    is_live: bool = False

    @property
    def subject(self) -> str:
        """As in findings."""
        return f"journal {self.journal_id}"

    @property
    def declared(self) -> dict[int, int]:
        """The newest sequence that each readable entry declares to be committed, by its own sequence."""
        return {sequence: entry.committed_through for sequence, entry in self.entries.items()}

    def finding(self, kind: FindingKind, detail: str, sequence: int | None = None) -> Finding:
        """One of this journal; `sequence`: of the object that is concerned."""
        key = "" if sequence is None else entry_key(self.namespace, self.journal_id, sequence)
        return Finding(kind=kind, subject=self.subject, detail=detail, key=key)


@dataclass(frozen=True, slots=True)
class Gap:
    """Committed sequences without an object, both ends included."""

    first: int
    last: int


def findings_of(facts: JournalFacts) -> list[Finding]:
    """Everything but gaps, which have to be looked up once more."""
    found = [
        facts.finding(FindingKind.ENTRY_DAMAGED, problem, sequence)
        for sequence, problem in sorted(facts.damaged.items())
    ]
    if facts.after is None:
        if facts.before is None and facts.sizes:
            detail = f"{len(facts.sizes)} objects; what counts of them no broker reads"
            found.append(facts.finding(FindingKind.JOURNAL_UNKNOWN, detail))
        if facts.before is None and facts.positions:
            detail = f"{len(facts.positions)} records go on in it, {min(facts.positions)} for one"
            found.append(facts.finding(FindingKind.POSITION_UNKNOWN, detail))
        return found
    found += [
        facts.finding(FindingKind.JOURNAL_INCONSISTENT, detail, sequence)
        for detail, sequence in (*_newest_problems(facts), *_end_problems(facts, facts.after))
    ]
    found += _position_findings(facts, facts.after)
    if facts.is_live and facts.after.ended_at is not None:
        detail = f"it ended at {facts.after.ended_at}, and its broker is registered still"
        found.append(facts.finding(FindingKind.JOURNAL_ENDED_LIVE, detail))
    return found


def _newest(facts: JournalFacts) -> int:
    return max(facts.sizes, default=-1)


def _newest_problems(facts: JournalFacts) -> Iterator[tuple[str, int | None]]:
    if facts.before is not None and facts.before.progress > _newest(facts):
        yield f"committed up to {facts.before.progress}, and no object from there on is left", None


def _end_problems(facts: JournalFacts, record: JournalRecord) -> Iterator[tuple[str, int | None]]:
    fence = record.ended_at
    if fence is None:
        return
    # The objects of a journal that nothing needs go thirty days after its end, the fence last.
    if fence not in facts.sizes and facts.is_named:
        yield f"it ended at {fence}, where no fence lies", fence
    elif fence in facts.entries:
        yield f"it ended at {fence}, where an entry lies", fence
    beyond = [sequence for sequence, through in facts.declared.items() if through >= fence]
    if beyond:
        yield f"it ended at {fence}, and an entry declares {facts.declared[beyond[0]]} committed", beyond[0]


def _position_findings(facts: JournalFacts, record: JournalRecord) -> Iterator[Finding]:
    end = _newest(facts) if record.ended_at is None else record.ended_at - 1
    for subject, position in sorted(facts.positions.items()):
        if position > end:
            yield Finding(
                kind=FindingKind.POSITION_BEYOND,
                subject=subject,
                detail=f"entry {position} of journal {facts.journal_id}, which has them up to {end}",
            )


def gaps(facts: JournalFacts) -> Iterator[Gap]:
    """Where committed entries are missing that were not collected, as this look shows it."""
    record = facts.after
    if record is None:
        return
    if record.ended_at is None:
        end = max(facts.declared.values(), default=-1)
    elif facts.is_named:
        end = record.ended_at - 1
    else:
        return  # Nothing needs it, and its deletion may be in flight.
    next_one = record.progress + 1
    for sequence in sorted(one for one in facts.sizes if record.progress < one <= end):
        if sequence > next_one:
            yield Gap(next_one, sequence - 1)
        next_one = sequence + 1
    if next_one <= end:
        yield Gap(next_one, end)


def needless(facts: JournalFacts, needed: Collection[int]) -> frozenset[int]:
    """The entries that brokers may delete, by what they may delete (`collectable`)."""
    record = facts.after
    if record is None:
        return frozenset()
    through = record.progress if record.ended_at is None else record.ended_at - 1
    return collectable(record, through, facts.declared, needed)


def refused(facts: JournalFacts) -> int:
    """The number of entries above the fence: what lies in them was never acknowledged."""
    record = facts.after
    if record is None or record.ended_at is None:
        return 0
    return sum(sequence > record.ended_at for sequence in facts.entries)


def head_problem(key_journal: str, key_sequence: int, journal_id: str, sequence: int) -> str:
    """Why an object does not belong under its key; empty if it does."""
    if (key_journal, key_sequence) == (journal_id, sequence):
        return ""
    return f"it says that it is {sequence} of journal {journal_id}"


def reference_problem(
    head: EntryHead, head_bytes: int, topic: str, partition: int, reference: SegmentReference
) -> str:
    """In what a record's reference is not what the directory of its object says; empty when it is."""
    rows = [row for row in head.slices if (row.topic, row.partition) == (topic, partition)]
    if not rows:
        return "it has no slice of the partition"
    problems = [_row_problem(row, head_bytes, reference) for row in rows]
    return "" if "" in problems else problems[0]


def _row_problem(row: EntrySlice, head_bytes: int, reference: SegmentReference) -> str:
    if row.object_key:
        return f"its slice lies in {row.object_key}"
    says = (
        ("offset", row.base_offset, reference.base_offset),
        ("last offset", row.last_offset, reference.last_offset),
        ("records", row.record_count, reference.record_count),
        ("leader epoch", row.leader_epoch, reference.leader_epoch),
        ("largest timestamp", row.max_timestamp_ms, reference.max_timestamp_ms),
        ("start", head_bytes + row.start, reference.start),
        ("bytes", row.size_bytes, reference.size_bytes),
    )
    return "; ".join(
        f"{name} {in_row}, the record says {in_record}"
        for name, in_row, in_record in says
        if in_row != in_record
    )


def joined(gap: Gap) -> str:
    """The gap for people."""
    return f"entry {gap.first}" if gap.first == gap.last else f"entries {gap.first} to {gap.last}"
