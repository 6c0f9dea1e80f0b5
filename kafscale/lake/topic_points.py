"""Points in a topic as the command line names them: an end of the log, offsets, or a time. Pure."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from kafscale.errors import SettingError
from kafscale.lake.offset_points import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    LogEdge,
    OffsetPoint,
    SpecificOffsets,
    TimestampForAll,
    parse_offsets,
)
from kafscale.reader.topic_state import PartitionLog, TopicLog

LEGAL = (
    'earliest, latest, offsets such as {"orders": {"0": 23, "1": -2}} (-1 is latest, -2 earliest), or a time such '
    "as 2026-11-21T08:00 (UTC unless it says otherwise)"
)

FindOffsets = Callable[[int, TopicLog], Mapping[int, int | None]]
"""The first offset of each partition whose record is not older than a time in Unix milliseconds, or None."""


def parse_point(option: str, text: str) -> OffsetPoint:
    """The value of an option. Raises `SettingError`."""
    stripped = text.strip()
    if stripped in ("earliest", "latest") or stripped.startswith("{"):
        return parse_offsets(option, stripped)
    try:
        time = datetime.fromisoformat(stripped)
    except ValueError:
        raise SettingError(f"{option} {text!r} is not legal: it must be {LEGAL}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return TimestampForAll(round(time.timestamp() * 1000))


def resolve_point(option: str, point: OffsetPoint, log: TopicLog, find: FindOffsets) -> dict[int, int]:
    """The offset in each partition that the point names.

    A time after every record means the log end. Raises `SettingError`.
    """
    if isinstance(point, TimestampForAll):
        found = find(point.timestamp_ms, log)
        ends = {one.partition: one.end_offset for one in log.partitions}
        return {
            partition: ends[partition] if offset is None else offset for partition, offset in found.items()
        }
    if isinstance(point, SpecificOffsets):
        return _specific(option, point, log)
    assert isinstance(point, LogEdge), "no option gives a time for each partition"
    return {one.partition: _at_edge(one, point) for one in log.partitions}


def _at_edge(log: PartitionLog, edge: LogEdge) -> int:
    return log.log_start_offset if edge is LogEdge.EARLIEST else log.end_offset


def _specific(option: str, point: SpecificOffsets, log: TopicLog) -> dict[int, int]:
    partitions = {one.partition: one for one in log.partitions}
    resolved = {}
    for (topic, partition), offset in point.offsets.items():
        if topic != log.topic:
            continue
        one = partitions.get(partition)
        if one is None:
            raise SettingError(f"{option} names {topic}-{partition}, and there is no such partition")
        if offset == EARLIEST_OFFSET:
            offset = one.log_start_offset
        elif offset == LATEST_OFFSET:
            offset = one.end_offset
        elif offset > one.log_end_offset:
            raise SettingError(
                f"{option} names offset {offset} of {topic}-{partition}, whose log ends at {one.log_end_offset}"
            )
        resolved[partition] = offset
    return resolved


def check_named_topics(points: Mapping[str, OffsetPoint | None], wants: Callable[[str], bool]) -> None:
    """Raise `SettingError` for a point with offsets of a topic that is not exported, a misspelt one, say.

    `points`: by option.
    """
    for option, point in points.items():
        named = {topic for topic, _ in point.offsets} if isinstance(point, SpecificOffsets) else set()
        surplus = sorted(topic for topic in named if not wants(topic))
        if surplus:
            raise SettingError(f"{option} names topic {surplus[0]!r}, which is not exported")


def starts_of(point: OffsetPoint, log: TopicLog, find: FindOffsets) -> dict[int, int]:
    """The start of an export; a partition that the point does not name begins with its log."""
    begins = {one.partition: one.log_start_offset for one in log.partitions}
    return begins | resolve_point("--starting-offsets", point, log, find)


def backfill_of(
    first: OffsetPoint, until: OffsetPoint, log: TopicLog, find: FindOffsets
) -> dict[int, tuple[int, int]]:
    """The offsets to export of each partition, from `first` to before `until`."""
    firsts = resolve_point("--backfill-from", first, log, find)
    untils = resolve_point("--backfill-until", until, log, find)
    return {
        partition: (firsts[partition], untils[partition])
        for partition in sorted(firsts.keys() & untils.keys())
        if firsts[partition] < untils[partition]
    }
