"""The results of a check as values: findings, orphans, and the reports of a partition and of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.formats.partition_transactions import OpenTransaction


class Severity(StrEnum):
    """The severity of a finding for the operator."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


class FindingKind(StrEnum):
    """A fault, or a thing worth knowing; the value is for people."""

    CLUSTER_UNKNOWN = "the metadata store belongs to no cluster"
    CLUSTER_DIFFERS = "the two stores belong to two clusters"
    MARKER_MISSING = "the namespace of the object store has no cluster marker"
    TOPIC_UNREADABLE = "the topic's record cannot be read"
    RECORD_MISSING = "the topic has such a partition, and the metadata store no record of it"
    RECORD_UNREADABLE = "the partition's record cannot be read"
    RECORD_INCONSISTENT = "the partition's record contradicts itself"
    CHECKPOINT_MISSING = "the checkpoint that the record names is gone"
    CHECKPOINT_DAMAGED = "the checkpoint that the record names cannot be read"
    CHECKPOINT_INCONSISTENT = "the checkpoint and the record contradict each other"
    OVERLAP = "two published segments claim the same offsets"
    HOLE_UNEXPLAINED = "hole: no segment holds these offsets, and nothing says why"
    SEGMENT_MISSING = "a published segment's object is gone"
    SEGMENT_SIZE = "a published segment's object has another size than the record says"
    SEGMENT_DAMAGED = "a published segment is damaged"
    SEGMENT_DIFFERS = "a published segment is sound, and not what the record says"
    INDEX_MISSING = "a published segment has no index"
    INDEX_DAMAGED = "an index is damaged"
    INDEX_LIES = "an index points to batches that are not there"
    INDEX_VERSION = "an index has a version that is not known here"
    JOURNAL_UNKNOWN = "the metadata store does not know the journal"
    JOURNAL_UNREADABLE = "the journal's record cannot be read"
    JOURNAL_INCONSISTENT = "the journal's record and its objects contradict each other"
    JOURNAL_GAP = "what a journal has behind the partition's record does not follow it"
    JOURNAL_ENDED_LIVE = (
        "the journal of a registered broker has ended: the broker takes no records until it notices"
    )
    ENTRY_MISSING = "a committed entry of a journal is gone"
    ENTRY_DAMAGED = "an entry of a journal, or a gathered object, is damaged"
    SLICE_DAMAGED = "a slice is damaged"
    SLICE_DIFFERS = "a slice is sound, and not what its row in the directory says"
    REFERENCE_DIFFERS = "the record names a slice, and its object has another one there"
    POSITION_UNKNOWN = "records go on in a journal that the metadata store does not know"
    POSITION_BEYOND = "the record goes on behind an entry that its journal never had"
    RECORD_WITHOUT_TOPIC = "partition records without a topic: of a creation that did not finish"
    TRANSACTION_HANGING = (
        "an open transaction that no coordinator will end: read_committed consumers wait at it"
    )
    TRANSACTION_UNREADABLE = "a transactional id's record cannot be read"
    OFFSET_UNREADABLE = "a group's committed offset cannot be read"
    OFFSET_BEYOND_END = "a group has committed an offset beyond the log's end"
    GROUP_UNREADABLE = "a group's record cannot be read: the group is not served"
    MEMBER_UNREADABLE = "a member of a group cannot be read: the group is not served"
    MEMBER_WITHOUT_GROUP = "a member is left over"
    SHARE_UNREADABLE = (
        "a share group's start or state cannot be read: the partition is not served to the group"
    )
    SHARE_STATE_INCONSISTENT = (
        "a share group's state is of a later start than there is: the partition is not served to the group"
    )
    SHARE_STATE_WITHOUT_START = "a share group's state is left over: it has no start"
    SHARE_WITHOUT_GROUP = "a start or state without its share group"
    SHARE_WITHOUT_TOPIC = "a share group's start or state is of a topic that is gone"
    SHARE_BEYOND_END = "a share group is beyond the log's end: it skips the records up to there"
    HOLE_PASSED_OVER = "skipped: a new leader found an older leader's upload there"

    @property
    def severity(self) -> Severity:
        """The severity."""
        return _SEVERITIES.get(self, Severity.PROBLEM)


_SEVERITIES: Final = {
    FindingKind.MARKER_MISSING: Severity.WARNING,
    FindingKind.RECORD_WITHOUT_TOPIC: Severity.WARNING,
    FindingKind.JOURNAL_ENDED_LIVE: Severity.WARNING,
    # Nothing is acknowledged by an index: a broker that is killed may leave a segment without one.
    FindingKind.INDEX_MISSING: Severity.WARNING,
    FindingKind.TRANSACTION_UNREADABLE: Severity.WARNING,
    FindingKind.OFFSET_UNREADABLE: Severity.WARNING,
    FindingKind.OFFSET_BEYOND_END: Severity.WARNING,
    FindingKind.MEMBER_WITHOUT_GROUP: Severity.WARNING,
    FindingKind.SHARE_STATE_WITHOUT_START: Severity.WARNING,
    FindingKind.SHARE_WITHOUT_GROUP: Severity.WARNING,
    FindingKind.SHARE_WITHOUT_TOPIC: Severity.WARNING,
    FindingKind.SHARE_BEYOND_END: Severity.WARNING,
    FindingKind.HOLE_PASSED_OVER: Severity.NOTE,
}

HOLES: Final = frozenset((FindingKind.HOLE_UNEXPLAINED, FindingKind.HOLE_PASSED_OVER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found.

    `subject`: the partition, topic or group. `key`: the object, where there is one. The offsets, both ends
    included, are those that are concerned; None where none are. `detail` is for people.
    """

    kind: FindingKind
    subject: str
    detail: str = ""
    key: str = ""
    first_offset: int | None = None
    last_offset: int | None = None

    @property
    def identity(self) -> tuple[FindingKind, str, str, int | None, int | None]:
        """The part that two looks at the same thing have in common."""
        return self.kind, self.subject, self.key, self.first_offset, self.last_offset

    @property
    def severity(self) -> Severity:
        """The severity."""
        return self.kind.severity


class OrphanReason(StrEnum):
    """The reason of an orphan; the value is for people."""

    ABOVE_LOG_END = "above the log's end: an upload in flight, or one that was never published"
    LEFTOVER = "an older leader's upload, which was never published"
    LEFT_OUT = "lies in a hole: left out by recover or --drop-missing, or its reference is lost"
    SUPERSEDED = "superseded: what it holds is in a merged segment"
    UNPUBLISHED_MERGE = "merged segment that no record names: a merge in progress, or one that was given up"
    EXPIRED = "expired: it lies below the log's start"
    INDEX_WITHOUT_SEGMENT = "an index without its segment"
    OLD_CHECKPOINT = "superseded checkpoint"
    UNNAMED_CHECKPOINT = "checkpoint that no record names: about to be named, or given up"
    NO_PARTITION = "the topic has no such partition"
    TOPIC_DELETING = "the topic is being deleted"
    TOPIC_DELETED = "the topic was deleted: a late upload, or the rest of a deletion"
    NO_TOPIC = "there is no such topic, and was none: `kafscale recover --topic` adopts it"


_REPLACED: Final = frozenset((OrphanReason.SUPERSEDED, OrphanReason.EXPIRED, OrphanReason.OLD_CHECKPOINT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """An object that no record refers to. `because`: the key of the object that makes it one, where one does."""

    key: str
    size_bytes: int
    modified_ms: int
    reason: OrphanReason
    because: str = ""

    @property
    def is_replaced(self) -> bool:
        """True if merging, retention or a newer checkpoint left it behind, for its leader to remove later.

        A healthy cluster always has some.
        """
        return self.reason in _REPLACED


class Standing(StrEnum):
    """The standing of a partition in the metadata store, where it has a record or an object."""

    ACTIVE = "active"
    UNJUDGED = "unjudged"
    NO_PARTITION = "no such partition"
    TOPIC_DELETING = "topic is being deleted"
    TOPIC_DELETED = "topic was deleted"
    NO_TOPIC = "no such topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSince:
    """An open transaction of a partition. `last_write_ms`: when its producer wrote last there, -1 if not known."""

    transaction: OpenTransaction
    last_write_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """A partition and everything that was found of it.

    The numbers are those of the record, 0 where it could not be read. `unjudged_objects`: of which nothing
    says whether they are referred to, because a record or a checkpoint cannot be read. `opened`: open transactions.
    """

    topic: str
    partition: int
    standing: Standing
    log_start_offset: int = 0
    log_end_offset: int = 0
    segment_count: int = 0
    record_count: int = 0
    size_bytes: int = 0
    findings: tuple[Finding, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    unjudged_objects: int = 0
    opened: tuple[OpenSince, ...] = ()

    @property
    def name(self) -> str:
        """As in findings' `subject`."""
        return f"{self.topic}-{self.partition}"

    @property
    def is_remarkable(self) -> bool:
        """True if there is anything to say of it."""
        return bool(self.findings or self.orphans or self.unjudged_objects)

    @property
    def unreplaced_orphans(self) -> tuple[Orphan, ...]:
        """Those that are not just replaced."""
        return tuple(one for one in self.orphans if not one.is_replaced)


class JournalStanding(StrEnum):
    """The standing of a journal; the value is for people."""

    LIVE = "a broker writes it"
    OPEN = "its broker is gone, and it has not ended"
    ENDED = "ended"
    UNKNOWN = "no record"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalReport:
    """A journal, or all gathered objects of its broker, and everything that was found of them.

    `progress` and `ended_at` are those of its record, None where it has none. `needless`: entries that brokers may
    delete, and their bytes; `refused`: entries above the fence, which never counted.
    """

    journal_id: str
    standing: JournalStanding
    broker_id: int | None = None
    progress: int | None = None
    ended_at: int | None = None
    entries: int = 0
    slices: int = 0
    size_bytes: int = 0
    gathered: int = 0
    gathered_bytes: int = 0
    needless: int = 0
    needless_bytes: int = 0
    refused: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """Everything that was found. `findings` are those of no partition of the bucket.

    `foreign_objects`: how many objects lie under the namespace that no broker would have put there, and
    `foreign_examples` some of them. `was_checked` is False when the stores do not belong together, so that
    comparing them would say nothing. `broker_ids`: of the brokers that were registered.
    """

    namespace: str
    cluster_id: str | None
    is_verified: bool
    was_checked: bool = True
    broker_ids: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
    partitions: tuple[PartitionReport, ...] = ()
    journals: tuple[JournalReport, ...] = ()
    foreign_objects: int = 0
    foreign_examples: Sequence[str] = ()

    @property
    def has_marker(self) -> bool:
        """True if the object store says, too, that it belongs to this cluster."""
        kinds = {finding.kind for finding in self.findings}
        return self.was_checked and FindingKind.MARKER_MISSING not in kinds

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """Of the cluster, of every partition and of every journal."""
        of_partitions = (one for partition in self.partitions for one in partition.findings)
        return (
            *self.findings,
            *of_partitions,
            *(one for journal in self.journals for one in journal.findings),
        )

    @property
    def all_orphans(self) -> tuple[Orphan, ...]:
        """Of every partition."""
        return tuple(one for partition in self.partitions for one in partition.orphans)
