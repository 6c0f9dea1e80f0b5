"""A partition's record held against its objects: what is missing, what is different, what is too much. Pure.

Theory of operation. The objects are listed first and the record is read then. An object is deleted only after
the record has ceased to name it, and the record names one only after it was put, but for the index of a segment,
which may come a little later. So what the record names and is not there is missing, and what was listed and is
not named by then is an orphan, or will be published above the log's end. What is named and was not listed may have
come since: it is looked up by its key before anything is said of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.index import ENTRY_SIZE, HEADER_SIZE
from kafscale.formats.partition_record import PartitionRecord, SegmentReference
from kafscale.objects.object_store import ObjectInfo
from kafscale.tools.fsck.findings import Finding, FindingKind, Orphan, PartitionReport, Standing
from kafscale.tools.fsck.orphans import OrphanSearch, checkpoint_orphans
from kafscale.tools.fsck.record_check import check_record, find_holes, published_references
from kafscale.tools.fsck.record_transactions import open_transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The stores' contents at one look at a partition.

    `checkpoint` is None when the record names none, or one that cannot be used; then `checkpoint_finding`
    says why. `looked_up`: sizes of objects that are named and were not listed, None for one that is not there.
    """

    namespace: str
    topic: str
    partition: int
    record: PartitionRecord
    checkpoint: Checkpoint | None
    checkpoint_finding: Finding | None
    listed: Sequence[ObjectInfo]
    checkpoints: Sequence[ObjectInfo]
    looked_up: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """The partition's name."""
        return f"{self.topic}-{self.partition}"

    @property
    def references(self) -> tuple[SegmentReference, ...]:
        """The published segments, as far as they are known."""
        return published_references(self.record, self.checkpoint)

    def key_of(self, reference: SegmentReference) -> str:
        """The object that holds the segment."""
        return object_keys.key_of_reference(self.namespace, self.topic, self.partition, reference)


def has_own_index(key: str, reference: SegmentReference) -> bool:
    """True if the segment is an object of its own, and so has an index beside it."""
    return reference.start == 0 and object_keys.parse_segment_key(key) is not None


def not_listed(look: Look) -> list[str]:
    """The keys that the record's references name and that the listing does not have."""
    listed = {info.key for info in look.listed}
    wanted = []
    for reference in look.references:
        key = look.key_of(reference)
        wanted.append(key)
        if has_own_index(key, reference):
            wanted.append(object_keys.index_key_of(key))
    return [key for key in wanted if key not in listed]


def compare(look: Look) -> PartitionReport:
    """Everything that record, checkpoint and keys and sizes of the objects show."""
    references = look.references
    findings = check_record(look.namespace, look.topic, look.partition, look.record, look.checkpoint)
    if look.checkpoint_finding is not None:
        findings.append(look.checkpoint_finding)
    findings += _object_findings(look, references)
    search = OrphanSearch(look.namespace, look.topic, look.partition, look.record, references)
    unreferenced = search.unreferenced(look.listed)
    unjudged = 0
    if look.checkpoint_finding is not None:
        # Which segments below its end are published, only the checkpoint says.
        judged = [info for info in unreferenced if _base(info) >= look.record.checkpoint_end_offset]
        unjudged, unreferenced = len(unreferenced) - len(judged), judged
    else:
        left_behind = {_base(info) for info in unreferenced if info.key.endswith(".kfs")}
        findings += find_holes(look.subject, look.record, references, left_behind)
    unexplained = [
        (finding.first_offset, finding.last_offset)
        for finding in findings
        if finding.kind is FindingKind.HOLE_UNEXPLAINED
        and finding.first_offset is not None
        and finding.last_offset is not None
    ]
    orphans: list[Orphan] = [*search.explain(unreferenced, unexplained)]
    orphans += checkpoint_orphans(look.record, look.checkpoints)
    return PartitionReport(
        topic=look.topic,
        partition=look.partition,
        standing=Standing.ACTIVE,
        log_start_offset=look.record.log_start_offset,
        log_end_offset=look.record.log_end_offset,
        segment_count=len(references),
        record_count=sum(reference.record_count for reference in references),
        size_bytes=sum(reference.size_bytes for reference in references),
        findings=tuple(findings),
        orphans=tuple(orphans),
        unjudged_objects=unjudged,
        opened=open_transactions(look.record, look.checkpoint),
    )


def _base(info: ObjectInfo) -> int:
    parsed = object_keys.parse_segment_key(info.key) or object_keys.parse_index_key(info.key)
    assert parsed is not None
    return parsed.base_offset


def _object_findings(look: Look, references: Sequence[SegmentReference]) -> list[Finding]:
    sizes: dict[str, int | None] = {info.key: info.size_bytes for info in look.listed}
    sizes.update(look.looked_up)
    found = []
    for reference in references:
        key = look.key_of(reference)
        problems = [(key, *_segment_problem(key, reference, sizes.get(key)))]
        if has_own_index(key, reference) and sizes.get(key) is not None:
            index_key = object_keys.index_key_of(key)
            problems.append((index_key, *_index_problem(sizes.get(index_key))))
        found += [
            Finding(
                kind=kind,
                subject=look.subject,
                detail=detail,
                key=concerned,
                first_offset=reference.base_offset,
                last_offset=reference.last_offset,
            )
            for concerned, kind, detail in problems
            if kind is not None
        ]
    return found


def _segment_problem(
    key: str, reference: SegmentReference, size_bytes: int | None
) -> tuple[FindingKind | None, str]:
    if size_bytes is None:
        return FindingKind.SEGMENT_MISSING, ""
    ends_at = reference.start + reference.size_bytes
    # What other partitions' segments follow in the same object, this record does not say.
    if size_bytes < ends_at or (has_own_index(key, reference) and size_bytes != ends_at):
        return FindingKind.SEGMENT_SIZE, f"{size_bytes} bytes, the record says {ends_at}"
    return None, ""


def _index_problem(size_bytes: int | None) -> tuple[FindingKind | None, str]:
    if size_bytes is None:
        return FindingKind.INDEX_MISSING, ""
    if size_bytes < HEADER_SIZE + ENTRY_SIZE or (size_bytes - HEADER_SIZE) % ENTRY_SIZE:
        return FindingKind.INDEX_DAMAGED, f"no index has {size_bytes} bytes"
    return None, ""
