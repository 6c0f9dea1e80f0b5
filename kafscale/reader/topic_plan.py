"""Plans the read of a topic: its partitions, their offsets by the caller's start and end, and the pieces to read."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from kafscale.errors import OffsetsGoneError
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.aborted_batches import IsolationLevel
from kafscale.reader.bounds import AtTime, Bound, Edge, Point, ReadOptionError
from kafscale.reader.splits import Split, plan_pieces, split_of
from kafscale.reader.timestamp_offsets import first_offset_at
from kafscale.reader.topic_state import (
    PartitionLog,
    TopicLog,
    TopicStates,
    UnknownTopicError,
    list_topics,
)
from kafscale.tasks.bounded import map_bounded

_PARTITIONS_AT_ONCE = 8


class OnExpired(StrEnum):
    """For a start below the log's start: an error, or go on with what is there."""

    ERROR = "error"
    EARLIEST = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """The wanted records of a topic. `partitions` None: all.

    `isolation_level`: `latest` is the last stable offset, or with `read_uncommitted` the log's end.
    """

    topic: str
    start: Bound = field(default_factory=lambda: Bound(Edge.EARLIEST))
    end: Bound = field(default_factory=lambda: Bound(Edge.LATEST))
    partitions: Sequence[int] | None = None
    on_expired: OnExpired = OnExpired.ERROR
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The offsets that are read of one partition, `first_offset` to before `next_offset`, and its log's ends then.

    Some of them are of aborted transactions, and not among the records that are read.
    """

    partition: int
    first_offset: int
    next_offset: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A planned read. `ranges`: one for each wanted partition, ascending, also those without an offset to read.

    `splits`: what there is to read of each of the others, in the same order.
    """

    topic: str
    topic_id: UUID
    ranges: tuple[PartitionRange, ...]
    splits: tuple[Split, ...] = field(repr=False)

    @property
    def offset_count(self) -> int:
        """The number of offsets in the ranges; gaps count."""
        return sum(one.next_offset - one.first_offset for one in self.ranges)

    @property
    def size_bytes(self) -> int:
        """The bytes of batches to read."""
        return sum(split.size_bytes for split in self.splits)


class TopicPlanner:
    """Plans reads of one topic from its stores. Keeps what it has read of journals, for callers that read on.

    All methods raise `StoreError`, `CorruptDataError`.
    """

    def __init__(
        self,
        metadata: MetadataReader,
        objects: ListingReader,
        namespace: str,
        topic: str,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._namespace = namespace
        self._states = TopicStates(
            metadata, objects, namespace, wants=topic.__eq__, isolation_level=isolation_level
        )

    async def plan(self, request: ReadRequest) -> TopicPlan:
        """The read, as the topic is now: all that was acknowledged before the call is in it.

        Raises `UnknownTopicError`, `ReadOptionError`, `OffsetsGoneError`.
        """
        topic = await self._topic(request)
        _check_named(request, topic)
        ranges = await map_bounded(
            lambda log: self._range(request, log), topic.partitions, _PARTITIONS_AT_ONCE
        )
        splits = await map_bounded(
            lambda one: self._split(*one),
            list(zip(topic.partitions, ranges, strict=True)),
            _PARTITIONS_AT_ONCE,
        )
        return TopicPlan(
            topic=topic.topic,
            topic_id=topic.topic_id,
            ranges=tuple(ranges),
            splits=tuple(split for split in splits if split is not None),
        )

    async def has_news(self, request: ReadRequest, positions: Mapping[int, int]) -> bool:
        """True if a partition of the request goes beyond its position, or has none and is not empty.

        For callers that poll: no object is read but the heads of new entries.
        """
        ends = await self._states.ends(request.topic, request.partitions, {})
        return any(one.end_offset > positions.get(one.partition, 0) for one in ends)

    async def _topic(self, request: ReadRequest) -> TopicLog:
        try:
            return await self._states.topic(request.topic, request.partitions)
        except UnknownTopicError as problem:
            names = [record.name for record in await list_topics(self._metadata)]
            if request.topic in names:
                raise
            near = difflib.get_close_matches(request.topic, names, n=3, cutoff=0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else _some_names(names)
            raise UnknownTopicError(f"{problem}; {hint}") from None

    async def _range(self, request: ReadRequest, log: PartitionLog) -> PartitionRange:
        start, end = request.start.of(log.partition), request.end.of(log.partition)
        first = await self._offset(start, log)
        following = min(await self._offset(end, log), log.end_offset)
        if _ends_before_it_starts(start, end):
            raise ReadOptionError(
                f"start={start} and end={end} are not legal for partition {log.partition}: the end must not lie "
                "before the start"
            )
        if first > log.log_end_offset and log.partition in request.start.by_partition:
            raise ReadOptionError(
                f"start={first} is not legal for partition {log.partition} of topic {log.topic!r}: its log has the "
                f"offsets {log.log_start_offset} to {log.log_end_offset - 1}"
            )
        if first < log.log_start_offset:
            if first < following:
                _check_expired(request, log, first, following)
            first = log.log_start_offset
        return PartitionRange(
            partition=log.partition,
            first_offset=first,
            next_offset=max(first, following),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )

    async def _offset(self, point: Point, log: PartitionLog) -> int:
        match point:
            case Edge.EARLIEST:
                return log.log_start_offset
            case Edge.LATEST:
                return log.end_offset
            case AtTime(timestamp_ms):
                found = await first_offset_at(timestamp_ms, log, self._states, self._objects, self._namespace)
                return log.end_offset if found is None else found
            case int():
                return point

    async def _split(self, log: PartitionLog, one: PartitionRange) -> Split | None:
        pieces = await plan_pieces(log, self._objects, self._namespace, one.first_offset, one.next_offset)
        if not pieces:
            return None
        return split_of(log, pieces)


def _ends_before_it_starts(start: Point, end: Point) -> bool:
    """As the caller names them. Where only one is an offset, what was written since says what is in between."""
    if isinstance(start, AtTime) and isinstance(end, AtTime):
        return start.timestamp_ms > end.timestamp_ms
    return isinstance(start, int) and isinstance(end, int) and start > end


def _some_names(names: Sequence[str]) -> str:
    if not names:
        return "it has no topics"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"it has {', '.join(sorted(names)[:10])}{more}"


def _check_named(request: ReadRequest, topic: TopicLog) -> None:
    """Of the partitions that start and end name. Raises `ReadOptionError`."""
    wanted = [log.partition for log in topic.partitions]
    for name, bound in (("start", request.start), ("end", request.end)):
        surplus = sorted(bound.by_partition.keys() - set(wanted))
        if surplus:
            raise ReadOptionError(
                f"{name} names partition {surplus[0]}, which is not read: those of topic {topic.topic!r} are "
                f"{_listed(wanted)}"
            )


def _listed(partitions: Sequence[int]) -> str:
    if len(partitions) > 1 and partitions[-1] - partitions[0] == len(partitions) - 1:
        return f"{partitions[0]} to {partitions[-1]}"
    return ", ".join(map(str, partitions))


def _check_expired(request: ReadRequest, log: PartitionLog, first: int, following: int) -> None:
    """Raises `OffsetsGoneError` unless the caller takes what is there."""
    if request.on_expired is OnExpired.EARLIEST:
        return
    gone = min(log.log_start_offset, following)
    there = (
        f"its log has the offsets {log.log_start_offset} to {log.log_end_offset - 1}"
        if log.log_end_offset > log.log_start_offset
        else f"its log is empty, and goes on at {log.log_end_offset}"
    )
    raise OffsetsGoneError(
        f"offsets {first} to {gone - 1} of partition {log.partition} of topic {log.topic!r} are gone: {there}; "
        "on_expired='earliest' begins there",
        log.topic,
        log.partition,
        first,
        gone,
    )
