"""Reads a bucket and plans its rebuild: lists it, checks every segment, and reads the newest checkpoints.

Partition by partition, so that memory is bounded by the largest partitions rather than by the bucket; of a
segment's bytes only one piece at a time is in memory.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from kafscale.cluster.marker import read_marker
from kafscale.cluster.new_topic import MAX_PARTITIONS
from kafscale.errors import (
    CorruptDataError,
    ObjectNotFoundError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import decode_checkpoint
from kafscale.formats.object_keys import CheckpointKey, SegmentKey
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, parse_footer, parse_header
from kafscale.log.reading.segment_inspection import InspectedSegment, SegmentInspection
from kafscale.objects.object_store import ListingReader, ObjectInfo
from kafscale.tasks.bounded import map_bounded, map_stream_bounded
from kafscale.tools.recovery.bucket_plan import BucketPlan, TopicPlan
from kafscale.tools.recovery.journal_slices import find_slices
from kafscale.tools.recovery.plan import (
    DamagedObject,
    FoundCheckpoint,
    KnownPartition,
    PartitionContents,
    PartitionPlan,
    empty_partition,
    plan_partition,
)

PIECE_BYTES: Final = 8 * 1024 * 1024
"""The bytes of a segment that are read at once."""

ATTEMPTS: Final = 6
FIRST_RETRY_SEC: Final = 0.2

_MAX_OFFSETS_PER_SEGMENT = 2**31

Result = TypeVar("Result")
PartitionName = tuple[str, int]
Known = Callable[[str, int], KnownPartition | None]
"""Knowledge of a partition from beside the bucket, by topic and index."""


class Progress(Protocol):
    """Receives the progress of a rebuild."""

    def inspected(self, key: str, size_bytes: int) -> None:
        """One more segment was read."""

    def written(self, topic: str) -> None:
        """One more topic is in the metadata store."""


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """The call's result; a call that the store did not answer is retried a few times.

    Only for calls that may be repeated. Raises what the last attempt raised.
    """
    for attempt in range(ATTEMPTS - 1):
        try:
            return await call()
        except StoreRefusedError:
            raise
        except (StoreUnavailableError, StoreIndeterminateError):
            await asyncio.sleep(FIRST_RETRY_SEC * 2**attempt)
    return await call()


def _nothing_known(topic: str, partition: int) -> None:
    """Without a snapshot."""


async def plan_rebuild(
    objects: ListingReader,
    namespace: str,
    *,
    topics: Collection[str] = (),
    known: Known = _nothing_known,
    concurrency: int,
    progress: Progress,
) -> BucketPlan:
    """Read everything under the namespace, or of `topics` alone, and decide what a rebuild makes of it.

    `concurrency`: pieces of segments read at the same time. Nothing is written. Raises `StoreError`;
    `CorruptDataError` for a cluster marker that cannot be read.
    """
    return await _Reading(objects, namespace, topics, known, concurrency, progress).plan()


class _Reading:
    """One pass over a bucket."""

    def __init__(
        self,
        objects: ListingReader,
        namespace: str,
        topics: Collection[str],
        known: Known,
        concurrency: int,
        progress: Progress,
    ) -> None:
        self._objects = objects
        self._namespace = namespace
        self._topics = sorted(set(topics))
        self._known = known
        self._concurrency = concurrency
        self._progress = progress
        self._reads = asyncio.Semaphore(concurrency)
        self._foreign_objects = 0

    async def plan(self) -> BucketPlan:
        cluster_id = await patiently(lambda: read_marker(self._objects, self._namespace))
        checkpoints = await self._list_checkpoints()
        journals = await find_slices(self._objects, self._namespace, self._topics, patiently)
        slices = journals.slices

        async def of_partition(found: tuple[PartitionName, list[ObjectInfo]]) -> PartitionPlan:
            name, infos = found
            return await self._plan_partition(name, infos, slices.pop(name, []), checkpoints.pop(name, []))

        async with aclosing(self._partitions()) as partitions:
            planned = await map_stream_bounded(of_partition, partitions, self._concurrency)
        # What is left has checkpoints or slices of journals, and not a single segment.
        left: list[tuple[PartitionName, list[ObjectInfo]]] = [
            (name, []) for name in dict.fromkeys([*checkpoints, *slices])
        ]
        planned += await map_bounded(of_partition, left, self._concurrency)
        return BucketPlan(
            namespace=self._namespace,
            cluster_id=cluster_id,
            topics=tuple(_topics(planned, self._known)),
            is_narrowed=bool(self._topics),
            foreign_objects=self._foreign_objects,
            journals=journals.records,
            problems=tuple(journals.problems),
        )

    async def _list_checkpoints(self) -> dict[PartitionName, list[tuple[CheckpointKey, ObjectInfo]]]:
        checkpoints: dict[PartitionName, list[tuple[CheckpointKey, ObjectInfo]]] = defaultdict(list)
        prefixes = [object_keys.checkpoints_topic_prefix(self._namespace, name) for name in self._topics]
        for prefix in prefixes or [object_keys.checkpoints_prefix(self._namespace)]:
            async for info in self._objects.list(prefix):
                parsed = object_keys.parse_checkpoint_key(info.key)
                if parsed is not None:
                    checkpoints[parsed.topic, parsed.partition].append((parsed, info))
        return checkpoints

    async def _partitions(self) -> AsyncGenerator[tuple[PartitionName, list[ObjectInfo]], None]:
        """Each partition with its segments; the order of keys keeps a partition's objects together."""
        name: PartitionName | None = None
        infos: list[ObjectInfo] = []
        prefixes = [object_keys.topic_prefix(self._namespace, topic) for topic in self._topics]
        for prefix in prefixes or [object_keys.namespace_prefix(self._namespace)]:
            async for info in self._objects.list(prefix):
                parsed = object_keys.parse_segment_key(info.key)
                found = parsed or object_keys.parse_index_key(info.key)
                if found is None:
                    self._foreign_objects += 1
                    continue
                if name != (found.topic, found.partition):
                    if name is not None:
                        yield name, infos
                    name, infos = (found.topic, found.partition), []
                if parsed is not None:
                    infos.append(info)
        if name is not None:
            yield name, infos

    async def _plan_partition(
        self,
        name: PartitionName,
        infos: Sequence[ObjectInfo],
        slices: Sequence[SegmentReference],
        checkpoints: Sequence[tuple[CheckpointKey, ObjectInfo]],
    ) -> PartitionPlan:
        checkpoint, problems = await self._newest_checkpoint(checkpoints)
        inspected = await map_bounded(self._inspect, infos, min(self._concurrency, max(len(infos), 1)))
        inspected += await map_bounded(
            lambda one: self._inspect_slice(name, one), slices, min(self._concurrency, max(len(slices), 1))
        )
        contents = PartitionContents(
            namespace=self._namespace,
            topic=name[0],
            partition=name[1],
            segments=[one for one in inspected if isinstance(one, InspectedSegment)],
            damaged=[one for one in inspected if isinstance(one, DamagedObject)],
            checkpoint=checkpoint,
            known=self._known(*name),
            problems=problems,
        )
        return await asyncio.to_thread(plan_partition, contents)

    async def _newest_checkpoint(
        self, checkpoints: Iterable[tuple[CheckpointKey, ObjectInfo]]
    ) -> tuple[FoundCheckpoint | None, list[str]]:
        """The newest that can be read. Epochs go first: they never restart for a name, offsets do."""
        problems = []
        newest_first = sorted(
            checkpoints,
            # Of two with the same end the later one knows of later deletions.
            key=lambda one: (one[0].leader_epoch, one[0].log_end_offset, one[1].modified_ms, one[1].key),
            reverse=True,
        )
        for parsed, info in newest_first:
            key = info.key
            try:
                data = await self._read(lambda key=key: self._objects.get(key))  # type: ignore[misc]
                checkpoint = decode_checkpoint(key, data)
                if checkpoint.end_offset != parsed.log_end_offset:
                    raise CorruptDataError(key, f"it says that it ends at {checkpoint.end_offset}")
            except ObjectNotFoundError:
                continue
            except CorruptDataError as problem:
                problems.append(f"a checkpoint is not used: {problem}")
                continue
            return FoundCheckpoint(key=key, leader_epoch=parsed.leader_epoch, checkpoint=checkpoint), problems
        return None, problems

    async def _inspect(self, info: ObjectInfo) -> InspectedSegment | DamagedObject | None:
        """The segment, or what is wrong with it; None when it is gone since it was listed."""
        parsed = object_keys.parse_segment_key(info.key)
        assert parsed is not None
        try:
            try:
                inspected = await self._read_segment(info, parsed)
            except CorruptDataError:
                # Once more from the store: what was damaged may have been the transfer.
                inspected = await self._read_segment(info, parsed)
        except CorruptDataError as problem:
            return await self._damaged(info, parsed, problem)
        except ObjectNotFoundError:
            return None
        self._progress.inspected(info.key, info.size_bytes)
        return inspected

    async def _inspect_slice(
        self, name: PartitionName, reference: SegmentReference
    ) -> InspectedSegment | DamagedObject | None:
        """The same for a slice of a journal's entry."""
        key = reference.object_key
        try:
            inspection = SegmentInspection(key, None, reference.size_bytes)
            for start in range(0, reference.size_bytes, PIECE_BYTES):
                inspection.feed(await self._slice_piece(reference, start))
            inspected = replace(inspection.finish(), start=reference.start, is_merged=True)
        except CorruptDataError as problem:
            return DamagedObject(
                key=key,
                base_offset=reference.base_offset,
                last_offset=reference.last_offset,
                is_merged=True,
                problem=f"the slice of {name[0]}-{name[1]}: {problem.problem}",
            )
        except ObjectNotFoundError:
            return None
        self._progress.inspected(key, reference.size_bytes)
        return inspected

    async def _slice_piece(self, reference: SegmentReference, start: int) -> bytes:
        length = min(PIECE_BYTES, reference.size_bytes - start)
        return await self._read(
            lambda: self._objects.get_range(reference.object_key, reference.start + start, length)
        )

    async def _read_segment(self, info: ObjectInfo, parsed: SegmentKey) -> InspectedSegment:
        inspection = SegmentInspection(info.key, parsed, info.size_bytes)
        for start in range(0, info.size_bytes, PIECE_BYTES):
            inspection.feed(await self._piece(info, start, PIECE_BYTES))
        return inspection.finish()

    async def _piece(self, info: ObjectInfo, start: int, length: int) -> bytes:
        length = min(length, info.size_bytes - start)
        return await self._read(lambda: self._objects.get_range(info.key, start, length))

    async def _read(self, call: Callable[[], Awaitable[bytes]]) -> bytes:
        async with self._reads:
            return await patiently(call)

    async def _damaged(
        self, info: ObjectInfo, parsed: SegmentKey, problem: CorruptDataError
    ) -> DamagedObject | None:
        base_offset, last_offset = parsed.base_offset, parsed.last_offset
        if last_offset is None:
            try:
                first = await self._piece(info, 0, HEADER_SIZE)
                last = await self._piece(info, max(0, info.size_bytes - FOOTER_SIZE), FOOTER_SIZE)
            except ObjectNotFoundError:
                return None
            last_offset = _last_offset_named(info.key, base_offset, first, last)
        return DamagedObject(
            key=info.key,
            base_offset=base_offset,
            last_offset=last_offset,
            is_merged=parsed.last_offset is not None,
            problem=problem.problem,
        )


def _last_offset_named(key: str, base_offset: int, first: bytes, last: bytes) -> int:
    """The last offset that a damaged segment still names, its first and last bytes given."""
    named = [base_offset]
    with suppress(CorruptDataError):
        header = parse_header(key, first)
        if header.base_offset == base_offset:
            named.append(base_offset + header.message_count - 1)
    with suppress(CorruptDataError):
        named.append(parse_footer(key, last).last_offset)
    return max(offset for offset in named if base_offset <= offset < base_offset + _MAX_OFFSETS_PER_SEGMENT)


def _topics(planned: Iterable[PartitionPlan], known: Known) -> Iterable[TopicPlan]:
    by_topic: Mapping[str, dict[int, PartitionPlan]] = defaultdict(dict)
    for plan in planned:
        by_topic[plan.topic][plan.partition] = plan
    for name, found in sorted(by_topic.items()):
        count = max(found) + 1
        if count > MAX_PARTITIONS:
            yield TopicPlan(
                name=name,
                partitions=tuple(plan for _, plan in sorted(found.items())),
                problem=f"it would have {count} partitions; a topic has at most {MAX_PARTITIONS}",
            )
        else:
            yield TopicPlan(
                name=name,
                partitions=tuple(
                    found.get(index) or empty_partition(name, index, known(name, index))
                    for index in range(count)
                ),
            )
