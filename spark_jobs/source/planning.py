"""Plans a query with the stores: its partitions, its offsets, and the splits that read them."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kafscale.errors import KafscaleError
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ObjectReader
from kafscale.tasks.bounded import map_bounded
from spark_jobs.source import option_rows as names
from spark_jobs.source.offset_points import (
    LogEdge,
    OffsetPoint,
    PartitionKey,
    SpecificOffsets,
    SpecificTimestamps,
    TimestampForAll,
)
from spark_jobs.source.offset_ranges import (
    Log,
    Logs,
    OffsetRange,
    Positions,
    ReportLoss,
    batch_ranges,
    logs_by_key,
    positions_at,
    timestamps_of,
)
from spark_jobs.source.options import Assignment, SourceOptions, TopicPattern, Topics, batch_points
from spark_jobs.source.splits import Split, plan_splits, references_between
from spark_jobs.source.timestamp_offsets import offsets_at
from spark_jobs.source.topic_state import (
    PartitionEnds,
    PartitionLog,
    UnknownTopicError,
    list_topics,
    read_topic,
    read_topic_ends,
)

_TOPICS_AT_ONCE = 8
_PARTITIONS_AT_ONCE = 16
# Smaller splits would only be more requests.
_LEAST_SPLIT_BYTES = 64 * 1024


Subscribed = tuple[str, tuple[int, ...] | None]
"""A topic and its wanted partitions, None for all."""


class NoTopicsError(KafscaleError):
    """No topic matches the pattern of a batch query."""


@dataclass(frozen=True, slots=True)
class Planner:
    """A query's options and the stores; `report_loss` receives what is lost of a topic.

    All methods raise `StoreError` and `CorruptDataError`.
    """

    options: SourceOptions
    namespace: str
    metadata: MetadataReader
    objects: ObjectReader
    report_loss: ReportLoss

    async def logs(self) -> Logs:
        """The partitions that the query subscribes to, as published now.

        Raises `UnknownTopicError` for a topic or partition that is named and not there.
        """
        found = await map_bounded(self._partitions, (await self._subscribed()).items(), _TOPICS_AT_ONCE)
        return logs_by_key(log for logs in found for log in logs)

    async def logs_left(self) -> Logs:
        """The partitions of a running stream: topics deleted since are a loss, reported to `report_loss`."""
        return logs_by_key(await self._left(self._partitions))

    async def ends_left(self) -> Mapping[PartitionKey, PartitionEnds]:
        """Starts and ends of the partitions of a running stream; read from the metadata store alone."""

        async def ends(item: Subscribed) -> Sequence[PartitionEnds]:
            return await read_topic_ends(self.metadata, *item)

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

    async def batch_splits(self) -> list[Split]:
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
        found = await offsets_at(timestamps, logs, self.metadata, self.objects, self.namespace)
        latest_without_match = self.options.latest_without_match or not is_start
        return positions_at(option, point, logs, found, latest_without_match=latest_without_match)

    async def splits_of(self, ranges: Sequence[OffsetRange], logs: Logs) -> list[Split]:
        """Splits that together have these ranges, ascending."""
        split_bytes = split_size(ranges, logs, self.options)

        async def plan(one: OffsetRange) -> list[Split]:
            log = logs[one.topic, one.partition]
            return await plan_splits(
                log,
                self.objects,
                self.namespace,
                one.first_offset,
                one.next_offset,
                split_bytes=split_bytes,
            )

        found = await map_bounded(plan, ranges, _PARTITIONS_AT_ONCE)
        return [split for splits in found for split in splits]

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

    async def _partitions(self, item: Subscribed) -> Sequence[PartitionLog]:
        topic, partitions = item
        return (await read_topic(self.metadata, self.objects, topic, partitions)).partitions


def split_size(ranges: Sequence[OffsetRange], logs: Logs, options: SourceOptions) -> int:
    """The number of bytes in a split, so that there are about as many splits as requested."""
    if options.min_partitions is None:
        return options.split_bytes
    size_bytes = sum(_size_bytes(one, logs[one.topic, one.partition]) for one in ranges)
    return min(options.split_bytes, max(_LEAST_SPLIT_BYTES, int(size_bytes / options.min_partitions)))


def _size_bytes(one: OffsetRange, log: PartitionLog) -> float:
    """The estimated bytes to read, as if all records of a segment had one size; each request counts."""
    size_bytes = 0.0
    for reference in references_between(log.references, one.first_offset, one.next_offset):
        first = max(one.first_offset, reference.base_offset)
        following = min(one.next_offset, reference.last_offset + 1)
        share = (following - first) / (reference.last_offset + 1 - reference.base_offset)
        size_bytes += max(_LEAST_SPLIT_BYTES, share * reference.size_bytes)
    return size_bytes


def _option_of(point: OffsetPoint, *, is_start: bool) -> str:
    match point:
        case LogEdge() | SpecificOffsets():
            return names.STARTING_OFFSETS if is_start else names.ENDING_OFFSETS
        case TimestampForAll():
            return names.STARTING_TIMESTAMP if is_start else names.ENDING_TIMESTAMP
        case SpecificTimestamps():
            return names.STARTING_OFFSETS_BY_TIMESTAMP if is_start else names.ENDING_OFFSETS_BY_TIMESTAMP
