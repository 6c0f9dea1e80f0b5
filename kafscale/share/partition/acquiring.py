"""Acquisition: which of the records that were read a member receives, and for how long they are its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from math import ceil
from typing import Final, NamedTuple

from kafscale.share.partition.runs import RecordState, Run, records_of
from kafscale.share.partition.share_partition import ShareLimits, SharePartition, advance

_LEAST_SUSPICIOUS: Final = 2
"""Deliveries after which a record is suspicious, where the limit is low."""


class AcquireMode(Enum):
    """BATCH_OPTIMIZED: whole batches, the last of which may go beyond the number that the member asked for."""

    BATCH_OPTIMIZED = auto()
    RECORD_LIMIT = auto()


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A batch of the log: its offsets, both inclusive. `has_records`: False for markers and what was aborted."""

    first: int
    last: int
    has_records: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wishes of a member. `batch_size`: how many records an acquired range has at most, if batches allow."""

    member_id: str
    max_records: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Acquired(NamedTuple):
    """A range of records that the member has now. `delivery_count`: this delivery among them."""

    first: int
    last: int
    delivery_count: int


def acquire(
    partition: SharePartition, wanted: Wanted, read_from: int, batches: Iterable[LogBatch], now_ms: int
) -> list[Acquired]:
    """Give the member what is available of the batches, which were read from the offset `read_from` on, in order.

    Offsets between them that no batch has were removed by compaction or deletion, and are finished.
    """
    acquired: list[Acquired] = []
    left, offset = wanted.max_records, read_from
    for batch in batches:
        if batch.last < offset:
            continue
        if left <= 0:
            break
        missing_to = batch.first - 1 if batch.has_records else batch.last
        _finish_in_flight(partition, offset, missing_to)
        if not _has_room(partition, batch):
            break
        _append_finished(partition, offset, missing_to)
        offset = batch.last + 1
        if not batch.has_records:
            continue
        part, is_alone = _take(partition, wanted, batch, left, now_ms, may_be_alone=not acquired)
        left -= sum(run.last - run.first + 1 for run in part)
        _join(acquired, part, wanted.batch_size)
        if is_alone:
            break
    advance(partition)
    return acquired


def _has_room(partition: SharePartition, batch: LogBatch) -> bool:
    return batch.first < partition.end_offset or partition.in_flight < partition.limits.max_in_flight


def _finish_in_flight(partition: SharePartition, first: int, last: int) -> None:
    """There are no records at these offsets any more. What a member has of them, it may acknowledge."""
    if first > last:
        return
    gone = [
        Run(run.first, run.last, RecordState.ARCHIVED, run.delivery_count)
        for run in partition.runs.within(first, last)
        if run.state is RecordState.AVAILABLE
    ]
    partition.counts.gaps += records_of(gone)
    partition.runs.replace(gone)
    advance(partition)


def _append_finished(partition: SharePartition, first: int, last: int) -> None:
    """There were no records at these offsets for any member."""
    begin = partition.end_offset
    if first <= begin <= last:
        partition.counts.gaps += last - begin + 1
        partition.runs.append(Run(begin, last, RecordState.ARCHIVED))


def _take(
    partition: SharePartition, wanted: Wanted, batch: LogBatch, left: int, now_ms: int, *, may_be_alone: bool
) -> tuple[list[Acquired], bool]:
    """Acquire what is available of the batch; True if the member is to have nothing else with it.

    `may_be_alone`: the member has nothing yet.
    """
    runs, limits = partition.runs, partition.limits
    most = left if wanted.mode is AcquireMode.RECORD_LIMIT else batch.last - batch.first + 1
    locked_until_ms = now_ms + limits.lock_duration_ms
    taken: list[Run] = []
    is_alone = False
    for run in runs.within(batch.first, min(batch.last, partition.end_offset - 1)):
        if not partition.may_give(run) or most <= 0:
            continue
        together = _together(run, limits)
        is_alone = together is not None
        if is_alone and (taken or not may_be_alone):
            break
        last = min(run.last, run.first + min(most, together or most) - 1)
        most -= last - run.first + 1
        count = run.delivery_count + 1
        taken.append(Run(run.first, last, RecordState.ACQUIRED, count, wanted.member_id, locked_until_ms))
        if is_alone:
            break
    runs.replace(taken)
    first = max(batch.first, partition.end_offset)
    last = min(batch.last, first + _room(partition, wanted, batch, most) - 1)
    if not is_alone and first == partition.end_offset and first <= last:
        taken.append(Run(first, last, RecordState.ACQUIRED, 1, wanted.member_id, locked_until_ms))
        runs.append(taken[-1])
    partition.counts.acquired += records_of(taken)
    return [Acquired(run.first, run.last, run.delivery_count) for run in taken], is_alone


def _together(run: Run, limits: ShareLimits) -> int | None:
    """How many records of the run are given to a member together, and nothing else with them; None: all.

    One of them may be a bad record that ends its consumer, and takes the deliveries of its neighbours with it. So,
    as in Kafka 4.2, records that came back often are given in ever smaller parts, and for the last time one by one.
    """
    suspicious_from = max(_LEAST_SUSPICIOUS, ceil(limits.max_deliveries / 2))
    if run.delivery_count < suspicious_from:
        return None
    if run.delivery_count + 1 >= limits.max_deliveries:
        return 1
    return max(1, run.records >> (run.delivery_count - suspicious_from + 1))


def _room(partition: SharePartition, wanted: Wanted, batch: LogBatch, most: int) -> int:
    """How many new records of the batch may be in flight: all, unless it is larger than the limit by itself."""
    limit = partition.limits.max_in_flight
    if partition.in_flight >= limit:
        return 0
    if wanted.mode is AcquireMode.BATCH_OPTIMIZED and batch.last - batch.first < limit:
        return most
    return max(min(most, limit - partition.in_flight), 0)


def _join(acquired: list[Acquired], part: list[Acquired], batch_size: int) -> None:
    """Add the ranges of a batch; they go on with the range before where that stays small."""
    for one in part:
        before = acquired[-1] if acquired else None
        if (
            before is not None
            and before.last + 1 == one.first
            and before.delivery_count == one.delivery_count
            and one.last - before.first < batch_size
        ):
            acquired[-1] = before._replace(last=one.last)
        else:
            acquired.append(one)
