"""Plans a query with the stores: its partitions, its offsets, and the splits that read them."""

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kafscale.errors import KafscaleError
from kafscale.lake.offset_points import (
    LATEST_OFFSET,
    LogEdge,
    OffsetPoint,
    SpecificOffsets,
    SpecificTimestamps,
    TimestampForAll,
)
from kafscale.lake.ranges import difference
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.shared_splits import AnySplit, PlannedPartition, divide
from kafscale.reader.splits import Piece, plan_pieces, references_between
from kafscale.reader.timestamp_offsets import offsets_at
from kafscale.reader.topic_state import (
    Freshness,
    Logs,
    PartitionEnds,
    PartitionKey,
    PartitionLog,
    Positions,
    TopicStates,
    UnknownTopicError,
    list_topics,
)
from kafscale.tasks.bounded import map_bounded
from spark_jobs.source import option_rows as names
from spark_jobs.source.offset_ranges import (
    Log,
    OffsetRange,
    ReportLoss,
    batch_ranges,
    logs_by_key,
    positions_at,
    timestamps_of,
)
from spark_jobs.source.options import Assignment, SourceOptions, TopicPattern, Topics, batch_points

_TOPICS_AT_ONCE = 8
_PARTITIONS_AT_ONCE = 16
# Smaller splits would only be more requests.
_LEAST_SPLIT_BYTES = 64 * 1024


Subscribed = tuple[str, tuple[int, ...] | None]
"""A topic and its wanted partitions, None for all."""


class NoTopicsError(KafscaleError):
    """No topic matches the pattern of a batch query."""


def topic_states(
    options: SourceOptions, namespace: str, metadata: MetadataReader, objects: ListingReader
) -> TopicStates:
    """Reads the topics that the query subscribes to, as fresh as it wants them."""
    match options.subscription:
        case Topics(topics):
            wanted: Callable[[str], bool] = frozenset(topics).__contains__
        case Assignment(partitions):
            wanted = partitions.__contains__
        case TopicPattern(pattern):
            matches = re.compile(pattern).fullmatch
            wanted = lambda topic: matches(topic) is not None  # noqa: E731
    return TopicStates(metadata, objects, namespace, options.freshness, wanted, options.isolation_level)


@dataclass(frozen=True, slots=True)
class Planner:
    """A query's options and the stores; `report_loss` receives what is lost of a topic.

    All methods raise `StoreError` and `CorruptDataError`.
    """

    options: SourceOptions
    namespace: str
    metadata: MetadataReader
    objects: ListingReader
    states: TopicStates
    report_loss: ReportLoss

    async def logs(self) -> Logs:
        """The partitions that the query subscribes to, as they are now, up to its end at least.

        Raises `UnknownTopicError` for a topic or partition that is named and not there, `TopicReplacedError`.
        """
        needed = needed_by(self.options)

        async def logs(item: Subscribed) -> Sequence[PartitionLog]:
            return await self._logs_of(item, needed)

        found = await map_bounded(logs, (await self._subscribed()).items(), _TOPICS_AT_ONCE)
        return logs_by_key(log for logs in found for log in logs)

    async def logs_left(self, needed: Positions) -> Logs:
        """The partitions of a running stream, up to `needed` at least.

        Topics deleted since are a loss, reported to `report_loss`.
        """

        async def logs(item: Subscribed) -> Sequence[PartitionLog]:
            return await self._logs_of(item, needed)

        return logs_by_key(await self._left(logs))

    async def _logs_of(self, item: Subscribed, needed: Positions | None) -> Sequence[PartitionLog]:
        topic, partitions = item
        topic_id = self.options.topic_ids.get(topic)
        found = await self.states.topic(topic, partitions, _of_topic(needed, topic), topic_id=topic_id)
        return found.partitions

    async def ends_left(self, starts: Positions) -> Mapping[PartitionKey, PartitionEnds]:
        """Starts and ends of the partitions of a running stream, which has read them up to `starts`.

        No object is read but the heads of entries that are new, and those only for what is published.
        """

        async def ends(item: Subscribed) -> Sequence[PartitionEnds]:
            topic, partitions = item
            topic_id = self.options.topic_ids.get(topic)
            return await self.states.ends(topic, partitions, _of_topic(starts, topic), topic_id=topic_id)

        return logs_by_key(await self._left(ends))

    async def _left(self, read: Callable[[Subscribed], Awaitable[Sequence[Log]]]) -> list[Log]:
        async def left(item: Subscribed) -> Sequence[Log]:
            try:
                return await read(item)
            except UnknownTopicError as problem:
                self.report_loss(str(problem))
                return ()

        found = await map_bounded(left, (await self._subscribed()).items(), _TOPICS_AT_ONCE)
        return [log for logs in found for log in logs]

    async def batch_splits(self) -> list[AnySplit]:
        """The ranges of a batch. Raises `SourceOptionError`, `NoTopicsError`, and as `logs` and `report_loss`."""
        starting, ending = batch_points(self.options)
        logs = await self.logs()
        if not logs:
            assert isinstance(self.options.subscription, TopicPattern)
            raise NoTopicsError(f"no topic matches the pattern {self.options.subscription.pattern!r}")
        starts = await self.positions(starting, logs, is_start=True)
        ends = await self.positions(ending, logs, is_start=False)
        return await self.splits_of(batch_ranges(starts, ends, logs, self.report_loss), logs)

    async def positions(self, point: OffsetPoint, logs: Logs, *, is_start: bool) -> Positions:
        """The current offset of `point` in each partition. Raises `SourceOptionError`."""
        option = _option_of(point, is_start=is_start)
        timestamps = timestamps_of(option, point, logs)
        found = await offsets_at(timestamps, logs, self.states, self.objects, self.namespace)
        latest_without_match = self.options.latest_without_match or not is_start
        return positions_at(option, point, logs, found, latest_without_match=latest_without_match)

    async def splits_of(self, ranges: Sequence[OffsetRange], logs: Logs) -> list[AnySplit]:
        """Splits that together have these ranges, topic by topic."""
        split_bytes = split_size(ranges, logs, self.options)

        async def plan(one: OffsetRange) -> PlannedPartition:
            log = logs[one.topic, one.partition]
            pieces: list[Piece] = []
            unwanted = self.options.except_offsets.get((one.topic, one.partition), ())
            for first, following in difference(((one.first_offset, one.next_offset),), unwanted):
                pieces += await plan_pieces(log, self.objects, self.namespace, first, following)
            return log, pieces

        topics: dict[str, list[PlannedPartition]] = defaultdict(list)
        for log, pieces in await map_bounded(plan, ranges, _PARTITIONS_AT_ONCE):
            topics[log.topic].append((log, pieces))
        return [split for planned in topics.values() for split in divide(planned, split_bytes)]

    async def _subscribed(self) -> Mapping[str, tuple[int, ...] | None]:
        """The topics, each with its wanted partitions, None for all."""
        match self.options.subscription:
            case Topics(topics):
                return dict.fromkeys(topics)
            case Assignment(partitions):
                return partitions
            case TopicPattern(pattern):
                return {
                    record.name: None
                    for record in await list_topics(self.metadata)
                    if re.fullmatch(pattern, record.name)
                }


def split_size(ranges: Sequence[OffsetRange], logs: Logs, options: SourceOptions) -> int:
    """The number of bytes in a split, so that there are about as many splits as requested."""
    if options.min_partitions is None:
        return options.split_bytes
    size_bytes = sum(_read_bytes(ranges, logs).values())
    return min(options.split_bytes, max(_LEAST_SPLIT_BYTES, int(size_bytes / options.min_partitions)))


def _read_bytes(ranges: Sequence[OffsetRange], logs: Logs) -> dict[object, float]:
    """The estimated bytes to read of each object, as if all records of a segment had one size; a request counts."""
    sizes: dict[object, float] = defaultdict(float)
    for one in ranges:
        log = logs[one.topic, one.partition]
        for reference in references_between(log.references, one.first_offset, one.next_offset):
            first = max(one.first_offset, reference.base_offset)
            following = min(one.next_offset, reference.last_offset + 1)
            share = (following - first) / (reference.last_offset + 1 - reference.base_offset)
            name = reference.object_key or (one.partition, reference.base_offset)
            sizes[one.topic, name] += share * reference.size_bytes
    return {name: max(_LEAST_SPLIT_BYTES, size_bytes) for name, size_bytes in sizes.items()}


def needed_by(options: SourceOptions) -> Positions | None:
    """The offsets before which all must be known that a batch reads; None where the freshness decides.

    What is newer than the end that the options name need not be known, whatever the freshness. Records that are not
    consolidated yet are known up to the start that the options name.
    """
    starting, ending = options.starting, options.ending
    if isinstance(ending, SpecificOffsets) and LATEST_OFFSET not in ending.offsets.values():
        return ending.offsets
    if options.freshness is Freshness.CONSOLIDATED and isinstance(starting, SpecificOffsets):
        return starting.offsets
    return None


def _of_topic(needed: Positions | None, topic: str) -> dict[int, int] | None:
    if needed is None:
        return None
    return {partition: offset for (name, partition), offset in needed.items() if name == topic}


def _option_of(point: OffsetPoint, *, is_start: bool) -> str:
    match point:
        case LogEdge() | SpecificOffsets():
            return names.STARTING_OFFSETS if is_start else names.ENDING_OFFSETS
        case TimestampForAll():
            return names.STARTING_TIMESTAMP if is_start else names.ENDING_TIMESTAMP
        case SpecificTimestamps():
            return names.STARTING_OFFSETS_BY_TIMESTAMP if is_start else names.ENDING_OFFSETS_BY_TIMESTAMP
