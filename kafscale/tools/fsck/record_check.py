"""True if a partition's record and checkpoint make sense, and where the log has holes. Pure."""

from collections.abc import Container, Iterator, Sequence
from itertools import pairwise

from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.partition_record import PartitionRecord, SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.tools.fsck.findings import Finding, FindingKind
from kafscale.tools.fsck.record_transactions import transaction_problems

_SMALLEST_SEGMENT_BYTES = HEADER_SIZE + BATCH_HEADER_SIZE + FOOTER_SIZE

MOST_LEFT_BEHIND = 2
"""Segments that a leader without a journal, of an earlier release, had in flight at most."""


def published_references(
    record: PartitionRecord, checkpoint: Checkpoint | None
) -> tuple[SegmentReference, ...]:
    """The references of the partition's readers: see `Partition.load`. Without a checkpoint the record's alone."""
    older = () if checkpoint is None else checkpoint.segments
    return tuple(
        reference
        for reference in (*older, *record.segments)
        if reference.last_offset >= record.log_start_offset
    )


def check_record(
    namespace: str, topic: str, partition: int, record: PartitionRecord, checkpoint: Checkpoint | None
) -> list[Finding]:
    """The faults of the record and of the checkpoint that it names; `checkpoint` is None when it is not known."""
    subject = f"{topic}-{partition}"
    found = [
        Finding(kind=FindingKind.RECORD_INCONSISTENT, subject=subject, detail=detail)
        for detail in (
            *_offset_problems(record),
            *_epoch_problems(record),
            *transaction_problems(record),
        )
    ]
    if record.checkpoint_key:
        found += [
            Finding(
                kind=FindingKind.CHECKPOINT_INCONSISTENT,
                subject=subject,
                detail=detail,
                key=record.checkpoint_key,
            )
            for detail in _checkpoint_problems(namespace, topic, partition, record, checkpoint)
        ]
    references = published_references(record, checkpoint)
    for reference in references:
        found += [
            Finding(
                kind=FindingKind.RECORD_INCONSISTENT,
                subject=subject,
                detail=detail,
                key=object_keys.key_of_reference(namespace, topic, partition, reference),
                first_offset=reference.base_offset,
                last_offset=reference.last_offset,
            )
            for detail in _reference_problems(record, reference)
        ]
    found += _order_problems(subject, references)
    return found


def _offset_problems(record: PartitionRecord) -> Iterator[str]:
    start, end = record.log_start_offset, record.log_end_offset
    if not 0 <= start <= end:
        yield f"the log starts at {start} and ends at {end}"
    if not 0 <= record.checkpoint_end_offset <= end:
        yield f"the checkpoint ends at {record.checkpoint_end_offset}, the log at {end}"


def _epoch_problems(record: PartitionRecord) -> Iterator[str]:
    for before, after in pairwise(record.epochs):
        if after.leader_epoch <= before.leader_epoch or after.start_offset < before.start_offset:
            yield (
                f"leader epoch {after.leader_epoch} from offset {after.start_offset} on follows epoch "
                f"{before.leader_epoch} from {before.start_offset} on"
            )
    for epoch in record.epochs[-1:]:
        if epoch.leader_epoch > record.leader_epoch or epoch.start_offset > record.log_end_offset:
            yield (
                f"leader epoch {epoch.leader_epoch} from offset {epoch.start_offset} on is beyond the current "
                f"epoch {record.leader_epoch} or the log's end {record.log_end_offset}"
            )


def _checkpoint_problems(
    namespace: str, topic: str, partition: int, record: PartitionRecord, checkpoint: Checkpoint | None
) -> Iterator[str]:
    parsed = object_keys.parse_checkpoint_key(record.checkpoint_key)
    if parsed is None or (parsed.namespace, parsed.topic, parsed.partition) != (namespace, topic, partition):
        yield "the record names something that is not a checkpoint of this partition"
    if checkpoint is None:
        return
    end_offset = record.checkpoint_end_offset
    if checkpoint.end_offset != end_offset:
        yield f"it ends at offset {checkpoint.end_offset}, the record says {end_offset}"
    beyond = [reference for reference in checkpoint.segments if reference.last_offset >= end_offset]
    if beyond:
        yield f"its segment {beyond[0].base_offset} lies beyond its end {end_offset}"


def _reference_problems(record: PartitionRecord, reference: SegmentReference) -> Iterator[str]:
    if reference.last_offset >= record.log_end_offset:
        yield f"a segment up to offset {reference.last_offset}; the log ends at {record.log_end_offset}"
    offsets = reference.last_offset - reference.base_offset + 1
    # Of a compacted segment nothing may be left.
    least_records = 1 if object_keys.compaction_of(reference) is None else 0
    if reference.base_offset < 0 or not least_records <= reference.record_count <= offsets:
        yield f"{reference.record_count} records at {offsets} offsets from {reference.base_offset} on"
    if reference.size_bytes < _SMALLEST_SEGMENT_BYTES or reference.start < 0:
        yield f"a segment of {reference.size_bytes} bytes at byte {reference.start} of its object"
    if reference.leader_epoch > record.leader_epoch:
        yield (
            f"a segment of leader epoch {reference.leader_epoch}; the partition is at {record.leader_epoch}"
        )
    parsed = object_keys.parse_segment_key(reference.object_key)
    if parsed is not None and (
        parsed.base_offset != reference.base_offset or parsed.last_offset not in (None, reference.last_offset)
    ):
        yield f"offsets {reference.base_offset} to {reference.last_offset} in an object of others"


def _order_problems(subject: str, references: Sequence[SegmentReference]) -> Iterator[Finding]:
    highest_epoch = -1
    for before, after in pairwise(references):
        if after.base_offset <= before.last_offset:
            yield Finding(
                kind=FindingKind.OVERLAP,
                subject=subject,
                detail=(
                    f"one holds {before.base_offset} to {before.last_offset}, "
                    f"the next {after.base_offset} to {after.last_offset}"
                ),
                first_offset=after.base_offset,
                last_offset=min(before.last_offset, after.last_offset),
            )
        highest_epoch = max(highest_epoch, before.leader_epoch)
        if 0 <= after.leader_epoch < highest_epoch:
            yield Finding(
                kind=FindingKind.RECORD_INCONSISTENT,
                subject=subject,
                detail=f"a segment of leader epoch {after.leader_epoch} follows one of {highest_epoch}",
                first_offset=after.base_offset,
                last_offset=after.last_offset,
            )


def find_holes(
    subject: str,
    record: PartitionRecord,
    references: Sequence[SegmentReference],
    left_behind: Container[int],
) -> list[Finding]:
    """The offsets of the log that no reference holds. `left_behind`: base offsets of orphans.

    A leader skips one offset for each orphan that it finds, and earlier leaders left them. So a hole has an
    explanation where an orphan lies at each of its offsets, or, as orphans are deleted in time, where leader
    epochs have passed that may have left them. Nothing explains a hole at the log's end: the offset up is taken
    with the publication that follows.
    """
    found = []
    next_offset, epoch = record.log_start_offset, -1
    for reference in references:
        first, last = next_offset, reference.base_offset - 1
        if last >= first:
            epochs_passed = reference.leader_epoch - epoch
            found.append(_hole(subject, first, last, epochs_passed, left_behind))
        next_offset = max(next_offset, reference.last_offset + 1)
        epoch = max(epoch, reference.leader_epoch)
    if next_offset < record.log_end_offset:
        found.append(_hole(subject, next_offset, record.log_end_offset - 1, 0, ()))
    return found


def may_be_passed_over(offsets: int, epochs_passed: int) -> bool:
    """True if the leaders of so many epochs may have left uploads for which so many offsets were skipped.

    Each leaves what it had in flight: `MOST_LEFT_BEHIND` at most.
    """
    return offsets <= MOST_LEFT_BEHIND * epochs_passed


def _hole(subject: str, first: int, last: int, epochs_passed: int, left_behind: Container[int]) -> Finding:
    count = last - first + 1
    if may_be_passed_over(count, epochs_passed):
        kind, detail = FindingKind.HOLE_PASSED_OVER, "the leader changed there"
    elif all(offset in left_behind for offset in range(first, last + 1)):
        kind, detail = FindingKind.HOLE_PASSED_OVER, "an orphan lies there"
    else:
        kind, detail = FindingKind.HOLE_UNEXPLAINED, f"{count} offsets"
    return Finding(kind=kind, subject=subject, detail=detail, first_offset=first, last_offset=last)
