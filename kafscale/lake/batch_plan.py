"""Plans the offsets of one commit: the published ones without those that the table has. Pure."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafscale.errors import KafscaleError, TopicReplacedError
from kafscale.lake.batch_size import FindCuts, Share, Wanted, no_cuts, references_within, shares_of
from kafscale.lake.commit_errors import ExportMismatchError
from kafscale.lake.export_state import ExportState
from kafscale.lake.ranges import Range, Ranges, difference, intersection, size
from kafscale.reader.topic_state import PartitionLog, TopicLog


class ExportRefusedError(KafscaleError):
    """The export would skip or repeat records without the operator's consent."""


class GapPolicy(StrEnum):
    """The treatment of records that expired before they were exported."""

    FAIL = "fail"
    RECORD = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The offsets that a run exports, by partition: ranges, fixed when the run begins.

    `starts`: where the export of a new partition begins; a backfill begins none.
    """

    topic_id: str
    ranges: Mapping[int, Ranges]
    starts: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """One commit: a range for each partition that has new records, and the offsets that are lost.

    `left_out`: offsets in the ranges that are not of the commit. `record_count`: the number of records in the ranges,
    with those of markers and aborted transactions; None if the references do not show it, because a range starts or
    ends inside of a segment. `next_turn`: the partition with which the next batch begins, if not all fit.
    `is_compacted`: as many rows are right as are read, see `check_compacted`.
    """

    ranges: Mapping[int, Range] = field(default_factory=dict)
    left_out: Mapping[int, Ranges] = field(default_factory=dict)
    gaps: Mapping[int, Ranges] = field(default_factory=dict)
    size_bytes: int = 0
    record_count: int | None = 0
    next_turn: int = 0
    is_compacted: bool = False

    @property
    def wanted(self) -> dict[int, Ranges]:
        """The offsets of the commit, by partition."""
        return {
            partition: difference((one,), self.left_out.get(partition, ()))
            for partition, one in self.ranges.items()
        }

    @property
    def offset_count(self) -> int:
        """The offsets of the commit, with a record or without."""
        return sum(map(size, self.wanted.values()))

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to commit."""
        return not self.ranges and not self.gaps


def target_of_run(state: ExportState, log: TopicLog, starts: Mapping[int, int]) -> Target:
    """Everything up to the last stable offset as it is now.

    `starts`: where to begin with partitions that have no export yet. Raises `ExportRefusedError`.
    """
    _check_topic(state, log)
    begun: dict[int, int] = {}
    ranges: dict[int, Ranges] = {}
    for partition in log.partitions:
        index, log_end = partition.partition, partition.log_end_offset
        position = state.position(index)
        if position is None:
            # A partition that was added to an exported topic: none of its records may be skipped.
            position = begun[index] = 0 if state.starts else starts[index]
        if position > log_end:
            raise ExportRefusedError(
                f"the table has {log.topic}-{index} up to offset {position}, but the log ends at {log_end}: the "
                "topic was restored from an older state, or the table belongs to another cluster; export into a new "
                "table"
            )
        ranges[index] = difference(((position, partition.end_offset),), state.done(index))
    return Target(topic_id=str(log.topic_id), starts=begun, ranges=ranges)


def target_of_backfill(state: ExportState, log: TopicLog, wanted: Mapping[int, Range]) -> Target:
    """The wanted offsets that the log has and the table lacks. Raises `ExportRefusedError`."""
    _check_topic(state, log)
    ranges: dict[int, Ranges] = {}
    for partition in log.partitions:
        first, following = wanted.get(partition.partition, (0, 0))
        asked = ((first, min(following, partition.end_offset)),)
        ranges[partition.partition] = difference(asked, state.done(partition.partition))
    return Target(topic_id=str(log.topic_id), ranges=ranges)


def _check_topic(state: ExportState, log: TopicLog) -> None:
    check_same_topic(state, str(log.topic_id), "the table")


def check_same_topic(state: ExportState, topic_id: str, table: str) -> None:
    """Raise `ExportRefusedError` if the table, which is named in the message, has an earlier topic of the name."""
    if state.topic_id and state.topic_id != topic_id:
        raise ExportRefusedError(
            f"{table} has an earlier topic of the name {state.topic!r} (topic id {state.topic_id}, now "
            f"{topic_id}), whose offsets mean other records: export into a new table"
        )


def replaced(problem: TopicReplacedError) -> ExportRefusedError:
    """The refusal of a topic that was created again while it was exported."""
    return ExportRefusedError(
        f"topic {problem.topic!r} was deleted and created again during the export: the export is of topic id "
        f"{problem.wanted_id}, and the topic of this name has topic id {problem.found_id} now; nothing of the new "
        "topic is in the table: export it into a new table"
    )


def has_lost(batch: BatchPlan, log: TopicLog) -> bool:
    """True if offsets of the batch have expired since it was planned."""
    starts = {partition.partition: partition.log_start_offset for partition in log.partitions}
    return any(first < starts.get(partition, 0) for partition, (first, _) in batch.ranges.items())


def check_compacted(batch: BatchPlan, topic: str, brought: int) -> None:
    """Raise `ExportMismatchError` if there are more rows than the ranges of a compacted topic have offsets.

    There may be fewer, and fewer than were planned: a compaction removes records at any time.
    """
    if brought > batch.offset_count:
        raise ExportMismatchError(topic, brought, batch.offset_count)


def was_compacted(problem: Exception, batch: BatchPlan, log: TopicLog) -> bool:
    """True if a batch has other rows than were planned because its topic became a compacted one meanwhile."""
    return isinstance(problem, ExportMismatchError) and log.is_compacted and not batch.is_compacted


def plan_batch(
    target: Target,
    state: ExportState,
    log: TopicLog,
    *,
    gap_policy: GapPolicy,
    max_batch_bytes: int,
    find_cuts: FindCuts = no_cuts,
    begins_at: int = 0,
) -> BatchPlan:
    """The next commit towards the target: the first range of each partition that is left, cut to the size.

    `find_cuts` tells where segments that do not fit can be divided. `begins_at`: the partition whose turn it is.
    Raises `ExportRefusedError` for expired offsets, unless they are to be recorded.
    """
    left, gaps = left_to_export(target, state, log, gap_policy)
    firsts: dict[int, tuple[PartitionLog, Range]] = {}
    for partition in log.partitions:
        there = left.get(partition.partition)
        if there:
            firsts[partition.partition] = (partition, there[0])
    shares = shares_of(firsts, max_batch_bytes, find_cuts, begins_at)
    return replace(_batch_of(shares, firsts, gaps, begins_at), is_compacted=log.is_compacted)


def left_to_export(
    target: Target, state: ExportState, log: TopicLog, gap_policy: GapPolicy
) -> tuple[dict[int, Ranges], dict[int, Ranges]]:
    """The rest of the target, by partition: the offsets that are there, and those that have expired.

    Raises `ExportRefusedError` for expired ones, unless they are to be recorded.
    """
    left: dict[int, Ranges] = {}
    gaps: dict[int, Ranges] = {}
    for partition in log.partitions:
        index = partition.partition
        wanted = difference(target.ranges.get(index, ()), state.done(index))
        lost = _expired(partition, wanted)
        if lost:
            gaps[index] = lost
        left[index] = difference(wanted, lost)
    if gaps and gap_policy is GapPolicy.FAIL:
        raise ExportRefusedError(_expired_message(log.topic, gaps))
    return left, gaps


def plan_cut(
    left: Mapping[int, Ranges], gaps: Mapping[int, Ranges], log: TopicLog, left_out: Mapping[int, Ranges]
) -> BatchPlan:
    """All that is left to export but for `left_out`, in one commit. The sizes are those of whole segments."""
    ranges: dict[int, Range] = {}
    kept: dict[int, Ranges] = {}
    size_bytes = 0
    for partition in log.partitions:
        index = partition.partition
        wanted = difference(left.get(index, ()), left_out.get(index, ()))
        if not wanted:
            continue
        ranges[index] = (wanted[0][0], wanted[-1][1])
        kept[index] = difference((ranges[index],), wanted)
        size_bytes += sum(one.size_bytes for one in references_within(partition, ranges[index]))
    return BatchPlan(
        ranges=ranges,
        left_out={partition: some for partition, some in kept.items() if some},
        gaps=gaps,
        size_bytes=size_bytes,
        record_count=None,
        is_compacted=log.is_compacted,
    )


def first_turn(state: ExportState) -> int:
    """The partition with which a run begins whose batches do not have room for all: each time another one.

    A run that is ended early, again and again, would otherwise always export the same ones.
    """
    partitions = len(state.starts)
    return zlib.crc32(state.commit_id.encode()) % partitions if partitions else 0


def _expired(partition: PartitionLog, left: Ranges) -> Ranges:
    return intersection(left, ((0, partition.log_start_offset),))


def _expired_message(topic: str, gaps: Mapping[int, Ranges]) -> str:
    told = ", ".join(
        f"{topic}-{partition} offsets {first} to {following - 1}"
        for partition, ranges in sorted(gaps.items())
        for first, following in ranges
    )
    return (
        f"expired before it was exported: {told}; to go on without these records, and have the table say so, run "
        "again with --on-expired record"
    )


def _batch_of(
    shares: Mapping[int, Share], firsts: Wanted, gaps: Mapping[int, Ranges], begins_at: int
) -> BatchPlan:
    counts = [_count(firsts[index][0], share.taken) for index, share in shares.items()]
    known = [count for count in counts if count is not None]
    return BatchPlan(
        ranges={index: shares[index].taken for index in sorted(shares)},
        gaps=gaps,
        size_bytes=sum(share.size_bytes for share in shares.values()),
        record_count=sum(known) if len(known) == len(counts) else None,
        next_turn=[begins_at - 1, *shares][-1] + 1,
    )


def _count(log: PartitionLog, wanted: Range) -> int | None:
    count = 0
    for reference in references_within(log, wanted):
        if reference.base_offset < wanted[0] or reference.last_offset >= wanted[1]:
            return None
        count += reference.record_count
    return count


def state_after(
    state: ExportState, batch: BatchPlan, commit_id: str, topic_id: str, starts: Mapping[int, int]
) -> ExportState:
    """The export state of the table after the batch."""
    return state.after(
        commit_id=commit_id, topic_id=topic_id, starts=starts, exported=batch.wanted, gaps=batch.gaps
    )
