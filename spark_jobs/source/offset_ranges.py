"""Resolves the start and end of a query to offsets of each partition, and finds lost ones. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kafscale.errors import KafscaleError
from kafscale.lake.offset_points import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    LogEdge,
    OffsetPoint,
    SourceOptionError,
    SpecificOffsets,
    SpecificTimestamps,
    TimestampForAll,
)
from kafscale.reader.topic_state import Logs, PartitionEnds, PartitionKey, PartitionLog, Positions

Bounds = Mapping[PartitionKey, PartitionEnds] | Logs
"""The current start and end of each partition's log; other fields are not used here."""

Log = TypeVar("Log", PartitionEnds, PartitionLog)

ReportLoss = Callable[[str], None]
"""Receives a message about lost records; returns if the query shall go on without them."""


class DataLossError(KafscaleError):
    """Records were deleted before they were read; the message names topic, partition and offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets that a query reads of one partition: `first_offset` to before `next_offset`, at least one."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int


def loss_reporter(*, fail_on_data_loss: bool, warn: Callable[[str], None]) -> ReportLoss:
    """The report for `failOnDataLoss`: raises `DataLossError`, or logs a warning."""

    def report(problem: str) -> None:
        if fail_on_data_loss:
            raise DataLossError(
                f"{problem}. Records expire by the topic's retention, and a topic that was deleted takes them "
                "with it; to go on with what is there, set the option failOnDataLoss to false"
            )
        warn(f"{problem}. The query continues without them, because failOnDataLoss is false")

    return report


def logs_by_key(logs: Iterable[Log]) -> Mapping[PartitionKey, Log]:
    """The ranges by topic and partition, ascending."""
    return {
        (log.topic, log.partition): log for log in sorted(logs, key=lambda log: (log.topic, log.partition))
    }


def timestamps_of(option: str, point: OffsetPoint, partitions: Collection[PartitionKey]) -> Positions:
    """The partitions whose offset must be found by a time (Unix milliseconds).

    Raises `SourceOptionError` if the point omits a partition or names one that does not exist.
    """
    if isinstance(point, TimestampForAll):
        return dict.fromkeys(partitions, point.timestamp_ms)
    if isinstance(point, SpecificTimestamps):
        _check_complete(option, point.timestamps_ms, partitions)
        return point.timestamps_ms
    return {}


def positions_at(
    option: str,
    point: OffsetPoint,
    logs: Bounds,
    found: Mapping[PartitionKey, int | None],
    *,
    latest_without_match: bool,
) -> dict[PartitionKey, int]:
    """The current offset of `point` in each partition.

    `found`: the offsets for `timestamps_of`, None if no record is as new. Raises `SourceOptionError`.
    """
    timestamps = timestamps_of(option, point, logs)
    if isinstance(point, SpecificOffsets):
        _check_complete(option, point.offsets, logs)
    positions: dict[PartitionKey, int] = {}
    for key, log in logs.items():
        if key in timestamps:
            offset = found[key]
            if offset is None and not latest_without_match:
                raise SourceOptionError(
                    f"option {option}: {_named(key)} has no record at or after {timestamps[key]}; with "
                    "startingOffsetsByTimestampStrategy=latest it would start at its end"
                )
            positions[key] = log.end_offset if offset is None else offset
        else:
            positions[key] = _at_edge(point, key, log)
    return positions


def _at_edge(point: OffsetPoint, key: PartitionKey, log: PartitionEnds | PartitionLog) -> int:
    offset = point.offsets[key] if isinstance(point, SpecificOffsets) else None
    if point is LogEdge.EARLIEST or offset == EARLIEST_OFFSET:
        return log.log_start_offset
    if point is LogEdge.LATEST or offset == LATEST_OFFSET:
        return log.end_offset
    assert offset is not None
    return offset


def batch_ranges(
    starts: Positions, ends: Positions, logs: Bounds, report_loss: ReportLoss
) -> list[OffsetRange]:
    """The ranges that a batch reads, ascending, without empty ones.

    Raises `SourceOptionError` for a partition that would end before it starts, and the errors of `report_loss`.
    """
    ranges: list[OffsetRange] = []
    for key, log in logs.items():
        start, end = starts[key], ends[key]
        if start > end:
            raise SourceOptionError(
                f"{_named(key)} would start at offset {start} and end before offset {end}: the end must not lie "
                "before the start"
            )
        if log.end_offset < end <= log.log_end_offset:
            raise SourceOptionError(
                f"{_named(key)} would end before offset {end}, and a transaction is open since offset "
                f"{log.end_offset}: end at latest, wait for it, or read with isolation.level=read_uncommitted"
            )
        _add(ranges, key, *_within_log(key, start, end, log, report_loss))
    return ranges


def stream_ranges(
    starts: Positions, ends: Positions, logs: Bounds, report_loss: ReportLoss
) -> list[OffsetRange]:
    """The ranges of a micro-batch: partitions and topics may have been created or deleted since it started.

    A new partition is read from its beginning. Raises the errors of `report_loss`.
    """
    for key in sorted(set(starts) - set(ends)):
        report_loss(
            f"{_named(key)} is gone, of which the offsets from {starts[key]} on were still to be read"
        )
    ranges: list[OffsetRange] = []
    for key, end in sorted(ends.items()):
        log = logs.get(key)
        if log is None:
            report_loss(
                f"{_named(key)} is gone, of which the offsets {starts.get(key, 0)} to {end - 1} were still to be read"
            )
            continue
        start = starts.get(key, 0)
        if start > min(end, log.log_end_offset):
            report_loss(
                f"{_named(key)} was read up to offset {start}, but now ends at {min(end, log.log_end_offset)}: the "
                "topic was deleted and created again, or its store was restored from an older state"
            )
            start = log.log_start_offset
        _add(ranges, key, *_within_log(key, start, end, log, report_loss))
    return ranges


def _within_log(
    key: PartitionKey, start: int, end: int, log: PartitionEnds | PartitionLog, report_loss: ReportLoss
) -> tuple[int, int]:
    if start < min(log.log_start_offset, end):
        last = min(log.log_start_offset, end) - 1
        report_loss(
            f"offsets {start} to {last} of {_named(key)} are gone: its log starts at {log.log_start_offset}"
        )
    if end > log.log_end_offset:
        report_loss(
            f"offsets {max(start, log.log_end_offset)} to {end - 1} of {_named(key)} are not there: its log ends at "
            f"{log.log_end_offset}"
        )
    return max(start, log.log_start_offset), min(end, log.log_end_offset)


def _add(ranges: list[OffsetRange], key: PartitionKey, first_offset: int, next_offset: int) -> None:
    if first_offset < next_offset:
        topic, partition = key
        ranges.append(
            OffsetRange(topic=topic, partition=partition, first_offset=first_offset, next_offset=next_offset)
        )


def limit_positions(
    starts: Positions, latest: Positions, logs: Bounds, max_offsets: int
) -> dict[PartitionKey, int]:
    """The end of a micro-batch of about `max_offsets` offsets: partitions share it in proportion to their size.

    Like Spark's Kafka source: a partition with records gives at least one offset, so that none starves.
    """
    waiting = waiting_offsets(starts, latest, logs)
    total = sum(waiting.values())
    if total <= max_offsets:
        return dict(latest)
    ends: dict[PartitionKey, int] = {}
    for key, end in latest.items():
        share = max(1, max_offsets * waiting[key] // total)
        ends[key] = min(end, end - waiting[key] + share) if waiting[key] else end
    return ends


def waiting_offsets(starts: Positions, latest: Positions, logs: Bounds) -> dict[PartitionKey, int]:
    """How many offsets there are to read of each partition."""
    return {
        key: max(0, end - max(starts.get(key, 0), logs[key].log_start_offset)) for key, end in latest.items()
    }


def _check_complete(
    option: str, given: Collection[PartitionKey], partitions: Collection[PartitionKey]
) -> None:
    missing, surplus = sorted(set(partitions) - set(given)), sorted(set(given) - set(partitions))
    if missing or surplus:
        told = [f"{_all_named(missing)} is missing"] if missing else []
        told += [f"{_all_named(surplus)} is not among the query's partitions"] if surplus else []
        raise SourceOptionError(f"option {option} must name every partition once: {', and '.join(told)}")


def _all_named(keys: Iterable[PartitionKey]) -> str:
    return ", ".join(_named(key) for key in keys)


def _named(key: PartitionKey) -> str:
    return f"{key[0]}-{key[1]}"
