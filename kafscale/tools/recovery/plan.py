"""The plan of a partition's rebuild: from its inspected segments to its record. Pure.

The rules and what they rest on: docs/recover.md, docs/decisions/0013-rebuild-from-the-bucket.md.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile
from typing import Final

from kafscale.cluster.leadership import REMEMBERED_EPOCHS
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT, Checkpoint, encode_checkpoint
from kafscale.formats.journal_keys import is_unsealed_key
from kafscale.formats.partition_record import EpochStart, PartitionRecord, ProducerRecord, SegmentReference
from kafscale.formats.partition_transactions import without_aborted_below
from kafscale.log.checkpointer import PRODUCER_EXPIRATION_MS
from kafscale.log.partition_log import CHECKPOINT_ABORTED, CHECKPOINT_PRODUCERS, CHECKPOINT_SEGMENTS
from kafscale.log.reading.segment_inspection import NO_EPOCH, InspectedSegment, SequencedBatch, Span
from kafscale.tools.recovery.overlaps import Dropped, DropReason, choose, in_order
from kafscale.tools.recovery.producers import producers_of, repeated
from kafscale.tools.recovery.transactions import Ending, endings_of, transactions_of

PASSED_OVER_EPOCHS: Final = 10_000
"""Leader epochs that are left unused: a leader that wrote nothing left no trace, and its epoch may be known."""

PASSED_OVER_PRODUCER_IDS: Final = 1_000_000
"""Producer ids that are left unused: those that were given out and of which nothing was written leave no trace."""

# Of the checkpoints that a rebuild writes; those of brokers are shorter, those of fsck longer.
_TOKEN_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedObject:
    """A segment that cannot be used. `base_offset` and `is_merged` are as its key says.

    `last_offset` is what its key, header or footer still say; `base_offset` when they say nothing.
    """

    key: str
    base_offset: int
    last_offset: int
    is_merged: bool
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A checkpoint as it lies in the bucket. `leader_epoch` is the one in its key."""

    key: str
    leader_epoch: int
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartition:
    """A partition by a snapshot of the metadata store: that much was so at its revision, or more.

    `leader_epoch`: the highest that the topic's name had. The offsets are 0 where only that is known.
    """

    leader_epoch: int
    log_start_offset: int = 0
    log_end_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionContents:
    """Everything that the bucket holds of a partition. `checkpoint`: the newest one that can be read.

    `known`: what a snapshot of the metadata store says besides, None without one.
    """

    namespace: str
    topic: str
    partition: int
    segments: Sequence[InspectedSegment]
    damaged: Sequence[DamagedObject] = ()
    checkpoint: FoundCheckpoint | None = None
    known: KnownPartition | None = None
    problems: Sequence[str] = ()


class HoleReason(StrEnum):
    """Why there may be no record at an offset between the log's start and its end."""

    SKIPPED = "skipped: an orphan lies there"
    DAMAGED = "a damaged segment begins there"
    LOST = "a checkpoint names a segment there, and it is gone"
    UNKNOWN = "nothing in the bucket: skipped, or lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Offsets without a record, both ends included."""

    first_offset: int
    last_offset: int
    reason: HoleReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The record to be written for a partition, and the outcome for everything that was found.

    `checkpoint_data` is what goes under `record.checkpoint_key`; empty when the record needs none.
    `highest_epoch` is the highest that was seen anywhere in the bucket, `NO_EPOCH` for none; the record's is
    higher. `is_of_later_topic`: the name was used again after the snapshot, as what lies in the bucket shows.
    `endings`: the last transactions that have ended, by producer id.
    """

    topic: str
    partition: int
    record: PartitionRecord
    checkpoint_data: bytes
    segment_count: int
    record_count: int
    size_bytes: int
    largest_segment_bytes: int
    highest_epoch: int
    highest_producer_id: int
    dropped: tuple[Dropped, ...]
    damaged: tuple[DamagedObject, ...]
    holes: tuple[Hole, ...]
    problems: tuple[str, ...]
    is_of_later_topic: bool = False
    endings: Mapping[int, Ending] = field(default_factory=dict)


def plan_partition(found: PartitionContents) -> PartitionPlan:
    """Decide on every segment, and on what the partition's record says then."""
    kept, dropped = _sorted_out(found)
    damaged = tuple(found.damaged)
    problems = list(found.problems)
    checkpoint = found.checkpoint
    if checkpoint is not None and _is_stale(checkpoint, kept):
        problems.append(f"{checkpoint.key} is of an older topic of this name: it is not used")
        checkpoint = None
    published = EMPTY_CHECKPOINT if checkpoint is None else checkpoint.checkpoint
    producers = producers_of(published.producers, kept, PRODUCER_EXPIRATION_MS)
    highest_epoch = _highest_epoch(found)
    known = found.known or KnownPartition(leader_epoch=NO_EPOCH)
    is_of_later_topic = _is_of_later_topic(known, kept)
    if is_of_later_topic:
        known = replace(
            known, log_start_offset=0, log_end_offset=0
        )  # Epochs go on for a name, offsets do not.
    ends = [segment.last_offset + 1 for segment in kept[-1:]] + [one.last_offset + 1 for one in damaged]
    log_end_offset = max(published.end_offset, known.log_end_offset, *ends, 0)
    kept, deleted = _without_deleted(kept, max(known.log_start_offset, _start_of(checkpoint)))
    dropped = tuple(sorted((*dropped, *deleted), key=in_order))
    log_start_offset = max(kept[0].base_offset, known.log_start_offset) if kept else log_end_offset
    record = PartitionRecord(
        leader_epoch=max(highest_epoch, known.leader_epoch) + PASSED_OVER_EPOCHS,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        epochs=_epochs(kept),
        segments=tuple(_reference(found, segment) for segment in kept),
        producers=producers,
        transactions=transactions_of(published.aborted, kept, log_start_offset),
    )
    record, checkpoint_data = _with_checkpoint(found, record, highest_epoch)
    return PartitionPlan(
        topic=found.topic,
        partition=found.partition,
        record=record,
        checkpoint_data=checkpoint_data,
        segment_count=len(kept),
        record_count=sum(segment.record_count for segment in kept),
        size_bytes=sum(segment.size_bytes for segment in kept),
        largest_segment_bytes=max((segment.size_bytes for segment in kept), default=0),
        highest_epoch=highest_epoch,
        highest_producer_id=_highest_producer_id(found.segments, published.producers),
        dropped=dropped,
        damaged=damaged,
        holes=_holes(kept, dropped, damaged, published, log_end_offset),
        problems=tuple(problems),
        is_of_later_topic=is_of_later_topic,
        endings=endings_of(kept),
    )


def _sorted_out(found: PartitionContents) -> tuple[tuple[InspectedSegment, ...], tuple[Dropped, ...]]:
    """The segments that are kept, and those that are left out."""
    chosen = choose(
        found.segments, [(one.base_offset, one.key) for one in found.damaged if not one.is_merged]
    )
    again = repeated(chosen.kept)
    orphans = [
        Dropped(segment=segment, reason=DropReason.REPEATED, because=again[segment.key])
        for segment in chosen.kept
        if segment.key in again
    ]
    kept = tuple(segment for segment in chosen.kept if segment.key not in again)
    return kept, tuple(sorted((*chosen.dropped, *orphans), key=in_order))


def _is_of_later_topic(known: KnownPartition, kept: Iterable[InspectedSegment]) -> bool:
    """True if leaders that came after the snapshot wrote below what was published then.

    Leaders of the same topic begin where their predecessors ended. Of a topic that was created again, what is left
    may begin above the old one's end: then nothing that is known of the old one takes anything from it.
    """
    return any(
        span.leader_epoch > known.leader_epoch and span.first_offset < known.log_end_offset
        for segment in kept
        for span in segment.spans
    )


def _without_deleted(
    kept: Sequence[InspectedSegment], log_start_offset: int
) -> tuple[tuple[InspectedSegment, ...], tuple[Dropped, ...]]:
    """Without the segments that lie wholly below where the log was known to start, and those."""
    deleted = tuple(
        Dropped(segment=segment, reason=DropReason.DELETED)
        for segment in kept
        if segment.last_offset < log_start_offset
    )
    return tuple(segment for segment in kept if segment.last_offset >= log_start_offset), deleted


def _start_of(found: FoundCheckpoint | None) -> int:
    """Below this offset the checkpoint names nothing, although it covers everything below its end; 0 for none.

    References leave a log at its front only, after a record that says so was written: what is below the first one
    was deleted, and its object is what a removal has not come to. Put back, it would lie beside holes that look
    like a loss. Not so for a rebuild's own checkpoint: what it left out as damaged may have been restored since.
    """
    parsed = None if found is None else object_keys.parse_checkpoint_key(found.key)
    if found is None or (parsed is not None and len(parsed.token) == _TOKEN_LENGTH):
        return 0
    published = found.checkpoint
    return published.segments[0].base_offset if published.segments else published.end_offset


def _highest_epoch(found: PartitionContents) -> int:
    """The highest leader epoch that was seen anywhere: of what is left out as well, and of any checkpoint."""
    epochs = [segment.leader_epoch for segment in found.segments]
    if found.checkpoint is not None:
        epochs.append(found.checkpoint.leader_epoch)
    return max(epochs, default=NO_EPOCH)


def empty_partition(topic: str, partition: int, known: KnownPartition | None = None) -> PartitionPlan:
    """A partition of which the bucket holds nothing."""
    return plan_partition(
        PartitionContents(namespace="", topic=topic, partition=partition, segments=(), known=known)
    )


def _is_stale(found: FoundCheckpoint, kept: Iterable[InspectedSegment]) -> bool:
    """True if it was written before the name was used again: later leaders begin above what it says is published."""
    return any(
        segment.leader_epoch > found.leader_epoch and segment.base_offset < found.checkpoint.end_offset
        for segment in kept
        if not segment.is_merged
    )


def _epochs(kept: Iterable[InspectedSegment]) -> tuple[EpochStart, ...]:
    epochs: list[EpochStart] = []
    for span in (span for segment in kept for span in segment.spans):
        if span.leader_epoch > (epochs[-1].leader_epoch if epochs else NO_EPOCH):
            epochs.append(EpochStart(span.leader_epoch, span.first_offset))
    return tuple(epochs[-REMEMBERED_EPOCHS:])


def _reference(found: PartitionContents, segment: InspectedSegment) -> SegmentReference:
    own_key = object_keys.segment_key(found.namespace, found.topic, found.partition, segment.base_offset)
    return SegmentReference(
        base_offset=segment.base_offset,
        last_offset=segment.last_offset,
        record_count=segment.record_count,
        leader_epoch=segment.leader_epoch,
        size_bytes=segment.size_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        object_key="" if segment.key == own_key else segment.key,
        start=segment.start,
    )


def _with_checkpoint(
    found: PartitionContents, record: PartitionRecord, highest_epoch: int
) -> tuple[PartitionRecord, bytes]:
    """The record with a checkpoint for what it has no room for, and the checkpoint's bytes.

    Slices stay in the record, with what follows them: which entries of journals are needed is seen from records
    alone. Everything in the key follows from what was found, so that a repeated rebuild writes the same object.
    """
    sealed = tuple(takewhile(lambda one: not is_unsealed_key(one.object_key), record.segments))
    aborted = record.transactions.aborted
    if (
        len(sealed) < CHECKPOINT_SEGMENTS
        and len(record.producers) < CHECKPOINT_PRODUCERS
        and len(aborted) < CHECKPOINT_ABORTED
    ):
        return record, b""
    rest = record.segments[len(sealed) :]
    end_offset = rest[0].base_offset if rest else record.log_end_offset
    data = encode_checkpoint(
        Checkpoint(end_offset=end_offset, segments=sealed, producers=record.producers, aborted=aborted)
    )
    key = object_keys.checkpoint_key(
        found.namespace,
        found.topic,
        found.partition,
        end_offset,
        max(highest_epoch, 0),
        hashlib.sha256(data).hexdigest()[:_TOKEN_LENGTH],
    )
    trimmed = replace(
        record,
        segments=rest,
        producers=(),
        checkpoint_key=key,
        checkpoint_end_offset=end_offset,
        transactions=without_aborted_below(record.transactions, record.log_end_offset),
    )
    return trimmed, data


def _highest_producer_id(segments: Iterable[InspectedSegment], producers: Iterable[ProducerRecord]) -> int:
    batches: Iterable[SequencedBatch] = (batch for segment in segments for batch in segment.sequenced)
    ids = [producer.producer_id for producer in producers]
    return max((*ids, *(batch.producer_id for batch in batches)), default=-1)


def _holes(
    kept: Sequence[InspectedSegment],
    dropped: Iterable[Dropped],
    damaged: Iterable[DamagedObject],
    published: Checkpoint,
    log_end_offset: int,
) -> tuple[Hole, ...]:
    left_behind = {one.segment.base_offset for one in dropped}
    broken = [one.base_offset for one in damaged]
    spans: list[Span] = [span for segment in kept for span in segment.spans]
    ends = [span.last_offset + 1 for span in spans]
    starts = [span.first_offset for span in spans[1:]]
    if kept:
        starts.append(log_end_offset)
    return tuple(
        Hole(
            first_offset=end,
            last_offset=start - 1,
            reason=_hole_reason(end, start - 1, left_behind, broken, published.segments),
        )
        for end, start in zip(ends, starts, strict=True)
        if start > end
    )


def _hole_reason(
    first: int,
    last: int,
    left_behind: set[int],
    broken: Iterable[int],
    references: Iterable[SegmentReference],
) -> HoleReason:
    if any(first <= offset <= last for offset in broken):
        return HoleReason.DAMAGED
    if any(one.base_offset <= last and one.last_offset >= first for one in references):
        return HoleReason.LOST
    if last - first < len(left_behind) and all(offset in left_behind for offset in range(first, last + 1)):
        return HoleReason.SKIPPED
    return HoleReason.UNKNOWN
