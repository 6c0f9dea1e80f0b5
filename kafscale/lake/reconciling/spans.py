"""Sorts offsets into those to compare, expired ones, and those that are not exported yet. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kafscale.lake.export_state import ExportState
from kafscale.lake.ranges import Ranges, difference, intersection
from kafscale.reader.topic_state import PartitionLog


class Standing(StrEnum):
    """The sides of a span that can be compared."""

    COMPARED = "compared"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Span:
    """Exported offsets of one partition, from `first` to before `next_offset`."""

    partition: int
    first: int
    next_offset: int
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The offsets of a partition, sorted.

    `lag`: not exported yet. `undecided`: not to be exported yet, because a transaction is open at the first of them.
    `aborted_transactions`: those with records among the compared offsets, which neither side has. `gaps`: expired
    before they were exported, and recorded. `before_start`: older than the start of the export, on purpose.
    `beyond_end`: exported according to the table, but the log never reached them.
    """

    partition: int
    log_start_offset: int
    log_end_offset: int
    spans: tuple[Span, ...]
    lag: Ranges = ()
    gaps: Ranges = ()
    before_start: Ranges = ()
    beyond_end: Ranges = ()
    undecided: Ranges = ()
    aborted_transactions: int = 0


def plan_partition(state: ExportState, log: PartitionLog, range_size: int) -> PartitionPlan:
    """Sort a partition's offsets by the table's export state and the log."""
    index, log_start, log_end = log.partition, log.log_start_offset, log.log_end_offset
    exported = state.exported.get(index, ())
    gaps = state.gaps.get(index, ())
    there, end = ((log_start, log_end),), max(log_start, log.end_offset)
    compared = intersection(exported, there)
    not_done = difference(there, state.done(index))
    start = state.starts.get(index, 0)
    spans = [
        Span(partition=index, first=first, next_offset=following, standing=standing)
        for standing, ranges in (
            (Standing.EXPIRED, intersection(exported, ((0, log_start),))),
            (Standing.COMPARED, compared),
        )
        for first, following in _split(ranges, range_size)
    ]
    return PartitionPlan(
        partition=index,
        log_start_offset=log_start,
        log_end_offset=log_end,
        spans=tuple(spans),
        lag=intersection(not_done, ((start, end),)),
        gaps=gaps,
        before_start=intersection(not_done, ((0, start),)),
        beyond_end=difference(exported, ((0, log_end),)),
        undecided=intersection(not_done, ((max(start, end), log_end),)),
        aborted_transactions=_aborted_among(compared, log),
    )


def _aborted_among(offsets: Ranges, log: PartitionLog) -> int:
    return sum(
        any(one.first_offset < following and one.last_offset >= first for first, following in offsets)
        for one in log.aborted.between(log.log_start_offset, log.log_end_offset)
    )


def _split(ranges: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Cut at the multiples of `size`, so that a span keeps its offsets from run to run."""
    for first, following in ranges:
        position = first
        while position < following:
            end = min(following, (position // size + 1) * size)
            yield position, end
            position = end
