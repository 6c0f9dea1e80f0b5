"""A topic by its objects alone, without a metadata store: what `kafscale recover` would rebuild, kept in memory.

Every object of the topic is read and checked, and the heads of all entries and gathered objects. What the bucket
cannot tell: docs/read-topics.md.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from kafscale.broker.stores import journal_place, open_objects_for_reading, whereabouts
from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.cluster.journal_place import check_journal_place
from kafscale.cluster.marker import find_marker
from kafscale.errors import CorruptDataError, OffsetsGoneError
from kafscale.formats.partition_record import encode_partition_record
from kafscale.formats.topic_record import encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import MetadataReader, Put
from kafscale.objects.object_store import ListingReader, ObjectInfo
from kafscale.reader.topic_state import UnknownTopicError
from kafscale.settings.broker import Settings
from kafscale.tools.recovery.bucket_plan import TopicPlan
from kafscale.tools.recovery.plan import HoleReason
from kafscale.tools.recovery.rebuild import patiently, plan_rebuild

_READS_AT_ONCE: Final = 8
_PUTS_AT_ONCE: Final = 16

OnRead = Callable[[int], None]
"""Receives the number of bytes of each object that was checked."""


class BucketAlone:
    """A `ReadSource` for one topic. The bucket is read at the first call, and what it says is kept."""

    def __init__(self, settings: Settings, topic: str, on_read: OnRead = lambda _: None) -> None:
        self.settings = settings
        self._topic = topic
        self._on_read = on_read
        self._metadata: MemoryStore | None = None
        self._plan: TopicPlan | None = None
        self._checkpoints: dict[str, bytes] = {}

    @property
    def place(self) -> str:
        """See `ReadSource`."""
        return f"{whereabouts(self.settings)[0]}, without a metadata store"

    async def open_objects(self, stack: AsyncExitStack) -> ListingReader:
        """See `ReadSource`."""
        objects = open_objects_for_reading(self.settings, stack)
        return _WithCheckpoints(objects, self._checkpoints)

    async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
        """See `ReadSource`. Raises `UnknownTopicError`, `StoreError`, `CorruptDataError`, `StartupError`."""
        if self._metadata is None:
            objects = open_objects_for_reading(self.settings, stack)
            self._plan = await self._planned(objects)
            self._metadata = await self._rebuilt(self._plan)
        return self._metadata

    def check_range(self, partition: int, first_offset: int, next_offset: int) -> list[str]:
        """Notes on offsets among these that may be missing, as sentences.

        Raises `CorruptDataError` for a damaged segment in them, `OffsetsGoneError` for one that is lost.
        """
        assert self._plan is not None, "the bucket was read"
        plan = self._plan.partitions[partition]
        for one in plan.damaged:
            if one.base_offset < next_offset and one.last_offset >= first_offset:
                raise CorruptDataError(
                    one.key, f"{one.problem} (offsets {one.base_offset} to {one.last_offset} or more)"
                )
        notes = []
        for hole in plan.holes:
            if hole.first_offset >= next_offset or hole.last_offset < first_offset:
                continue
            said = f"offsets {hole.first_offset} to {hole.last_offset} of {self._topic}-{partition}"
            if hole.reason is HoleReason.LOST:
                raise OffsetsGoneError(
                    f"{said} are lost: a checkpoint names a segment there, and its object is gone",
                    self._topic,
                    partition,
                    hole.first_offset,
                    hole.last_offset + 1,
                )
            if hole.reason is HoleReason.UNKNOWN:
                notes.append(f"no object has {said}: they were skipped by a new leader, or are lost")
        return notes

    async def _planned(self, objects: ListingReader) -> TopicPlan:
        namespace = self.settings.s3_namespace
        await patiently(lambda: check_journal_place(objects, namespace, journal_place(self.settings)))
        found = await plan_rebuild(
            objects,
            namespace,
            topics=[self._topic],
            concurrency=_READS_AT_ONCE,
            progress=_Told(self._on_read),
        )
        if not found.topics:
            marker = await patiently(lambda: find_marker(objects, namespace))
            whose = "which is no cluster's" if marker is None else f"of cluster {marker.cluster_id}"
            raise UnknownTopicError(
                f"there is no object of a topic {self._topic!r} in {self.place}: namespace {namespace!r}, {whose}"
            )
        if found.problems:
            # Which topics have records in it cannot be known.
            name, _, problem = found.problems[0].partition(": ")
            raise CorruptDataError(name, f"{problem}; it may have records of topic {self._topic!r}")
        (plan,) = found.topics
        if plan.problem:
            raise CorruptDataError(self._topic, plan.problem)
        return plan

    async def _rebuilt(self, plan: TopicPlan) -> MemoryStore:
        metadata = MemoryStore()
        record = TopicRecord(name=plan.name, topic_id=new_kafka_uuid(), partition_count=len(plan.partitions))
        puts = [Put(keys.topic(plan.name), encode_topic_record(record))]
        for one in plan.partitions:
            puts.append(Put(keys.partition(plan.name, one.partition), encode_partition_record(one.record)))
            if one.checkpoint_data:
                self._checkpoints[one.record.checkpoint_key] = one.checkpoint_data
        for start in range(0, len(puts), _PUTS_AT_ONCE):
            await metadata.transact([], puts[start : start + _PUTS_AT_ONCE])
        return metadata


class _Told:
    """The progress of a rebuild, for those who count bytes."""

    def __init__(self, on_read: OnRead) -> None:
        self._on_read = on_read

    def inspected(self, key: str, size_bytes: int) -> None:
        """See `Progress`."""
        self._on_read(size_bytes)

    def written(self, topic: str) -> None:
        """See `Progress`: nothing is written here."""


class _WithCheckpoints:
    """The objects, and beside them checkpoints that a rebuild would write."""

    def __init__(self, objects: ListingReader, checkpoints: Mapping[str, bytes]) -> None:
        self._objects = objects
        self._checkpoints = checkpoints

    async def get(self, key: str) -> bytes:
        """See `ObjectReader`."""
        known = self._checkpoints.get(key)
        return await self._objects.get(key) if known is None else known

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `ObjectReader`."""
        return await self._objects.get_range(key, start, length)

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """See `ObjectReader`."""
        return await self._objects.read_into(key, start, length, targets)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """See `ListingReader`."""
        return self._objects.list(prefix)
