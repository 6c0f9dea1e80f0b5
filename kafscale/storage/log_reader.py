"""Finds the bytes that a fetch asks for: from the segments in memory, else from the object store."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from kafscale.cache.lru import ByteLimitedLru
from kafscale.cache.single_flight import SingleFlight
from kafscale.errors import CorruptDataError, ObjectNotFoundError, StoreError
from kafscale.metadata.partition_record import SegmentReference
from kafscale.ops.metrics import Metrics
from kafscale.protocol.record_batch import MAGIC, read_header
from kafscale.storage import object_keys
from kafscale.storage.cached_segment import CachedSegment
from kafscale.storage.index import SparseIndex, parse_index, rebuild_index
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.partition import Partition
from kafscale.storage.partition_log import SealedSegment
from kafscale.storage.segment import HEADER_SIZE, Segment, body_crc, parse_segment
from kafscale.storage.slab import SlabPool

logger = logging.getLogger(__name__)

# A slab less used than this is copied out of, so that the cache does not keep the unused rest.
_KEPT_SLAB_FILL = 0.5


@dataclass(slots=True)
class Read:
    """Whole batches of one partition, as views. `segments` are held: release them when the views are gone."""

    views: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0
    segments: list[CachedSegment] = field(default_factory=list)

    def release(self) -> None:
        """The views are not used any more."""
        for segment in self.segments:
            segment.release()
        self.segments.clear()


class LogReader:
    """The published segments of all partitions, with the L1 cache in front of the object store."""

    def __init__(
        self, objects: ObjectStore, namespace: str, cache_bytes: int, pool: SlabPool, metrics: Metrics
    ) -> None:
        self._objects = objects
        self._namespace = namespace
        self._pool = pool
        self._metrics = metrics
        self._cache_metrics = metrics.cache("segment")
        self.cache: ByteLimitedLru[tuple[int, int], CachedSegment] = ByteLimitedLru(
            cache_bytes, CachedSegment.release
        )
        self._loads: SingleFlight[tuple[int, int], CachedSegment] = SingleFlight()
        self._index_writes: set[asyncio.Task[None]] = set()

    # --- from memory

    def add_published(self, partition: Partition, sealed: SealedSegment) -> None:
        """Take over the memory of a segment that has just been published."""
        body = sealed.buffer.body()
        slabs = sealed.buffer.take_slabs()
        index = parse_index("published segment", sealed.index, sealed.reference.base_offset)
        filled = sum(slab.used_bytes for slab in slabs)
        if filled >= _KEPT_SLAB_FILL * sum(slab.capacity_bytes for slab in slabs):
            pieces = [memoryview(part) for part in body]
            segment = CachedSegment(
                sealed.reference,
                pieces,
                HEADER_SIZE,
                index,
                partition_number=partition.number,
                slabs=slabs,
                pool=self._pool,
            )
        else:
            pieces = [memoryview(b"".join(body))]
            segment = CachedSegment(
                sealed.reference, pieces, HEADER_SIZE, index, partition_number=partition.number
            )
            for slab in slabs:
                self._pool.release(slab)
        self.cache.put((partition.number, sealed.reference.base_offset), segment, segment.size_bytes)

    def forget(self, partition: Partition) -> None:
        """Drop the segments of a partition that is gone."""
        for reference in partition.references or ():
            self.cache.remove((partition.number, reference.base_offset))

    def missing(self, partition: Partition, offset: int, max_bytes: int) -> list[SegmentReference]:
        """The segments that `read` would want and that are not in memory, at most `max_bytes` of them or one."""
        assert partition.references is not None
        missing = []
        planned_bytes = 0
        for reference in partition.references.from_offset(offset):
            if self.cache.get((partition.number, reference.base_offset)) is None:
                missing.append(reference)
            planned_bytes += reference.size_bytes
            if planned_bytes >= max_bytes:
                break
        return missing

    def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        at_least_one: bool,
        loaded: Sequence[CachedSegment] = (),
    ) -> Read:
        """Batches from the one that holds `offset` on, up to `max_bytes`, as far as they are in memory.

        The first batch is returned even when it is larger, if `at_least_one`. `loaded` are segments that the
        caller holds although the cache may have dropped them.
        """
        assert partition.references is not None
        at_hand = {segment.reference.base_offset: segment for segment in loaded}
        result = Read()
        for reference in partition.references.from_offset(offset):
            segment = at_hand.get(reference.base_offset)
            if segment is None:
                segment = self.cache.get((partition.number, reference.base_offset))
                if segment is None:
                    break
                self._cache_metrics.hits += 1
            start = segment.position_of(max(offset, reference.base_offset))
            end = segment.limit(start, max_bytes - result.size_bytes, at_least_one and not result.size_bytes)
            if end == start:
                break
            result.segments.append(segment.hold())
            result.views.extend(segment.slices(start, end))
            result.size_bytes += end - start
            result.record_count += segment.offset_at(end) - segment.offset_at(start)
            if end < segment.end or result.size_bytes >= max_bytes:
                break
        return result

    # --- from the store

    async def load(self, partition: Partition, reference: SegmentReference) -> CachedSegment:
        """The segment, from the store unless it is in memory by now; it comes held.

        Raises `CorruptDataError` when the object is not what the record says, `ObjectNotFoundError`, and
        `StoreError` as the store does.
        """
        key = (partition.number, reference.base_offset)
        cached = self.cache.get(key)
        if cached is not None:
            return cached.hold()
        self._cache_metrics.misses += 1
        segment = await self._loads.run(key, lambda: self._load(partition, reference))
        return segment.hold()

    async def _load(self, partition: Partition, reference: SegmentReference) -> CachedSegment:
        try:
            segment = await self._get(partition, reference)
        except CorruptDataError as problem:
            # Once more from the store: what was damaged may have been the transfer.
            logger.warning("a segment is damaged, reading it again", extra={"problem": str(problem)})
            segment = await self._get(partition, reference)
        # The cache's hold, and one that falls to the collector: a loaded segment owns no slabs.
        self.cache.put((partition.number, reference.base_offset), segment, segment.size_bytes)
        return segment

    async def _get(self, partition: Partition, reference: SegmentReference) -> CachedSegment:
        topic, number = partition.id.topic, partition.id.index
        key = reference.object_key or object_keys.segment_key(
            self._namespace, topic, number, reference.base_offset
        )
        index_key = object_keys.index_key_of(key)
        data, index_data = await asyncio.gather(
            self._objects.get_range(key, reference.start, reference.size_bytes), self._get_index(index_key)
        )
        segment, new_index = await asyncio.to_thread(
            self._checked, partition, reference, key, data, index_key, index_data
        )
        if new_index is not None:
            self._metrics.index_rebuilds += 1
            task = asyncio.create_task(self._put_index(index_key, new_index), name=f"rewrite {index_key}")
            self._index_writes.add(task)
            task.add_done_callback(self._index_writes.discard)
        return segment

    async def _get_index(self, key: str) -> bytes | None:
        try:
            return await self._objects.get(key)
        except ObjectNotFoundError:
            return None

    async def _put_index(self, key: str, index: bytes) -> None:
        try:
            await self._objects.put(key, [index])
        except StoreError as problem:
            # The next reader that finds it unusable tries again.
            logger.warning("could not rewrite an index", extra={"key": key, "problem": str(problem)})

    def _checked(
        self,
        partition: Partition,
        reference: SegmentReference,
        key: str,
        data: bytes,
        index_key: str,
        index_data: bytes | None,
    ) -> tuple[CachedSegment, bytes | None]:
        """The segment, and its index's new bytes when the stored ones are unusable."""
        segment = parse_segment(key, data)
        if (segment.base_offset, segment.last_offset) != (reference.base_offset, reference.last_offset):
            raise CorruptDataError(
                key,
                f"holds offsets {segment.base_offset} to {segment.last_offset}, the partition record says "
                f"{reference.base_offset} to {reference.last_offset}",
            )
        if body_crc([segment.body]) != segment.footer.body_crc:
            raise CorruptDataError(key, "the CRC of the body does not match the footer's")
        new_index = None
        try:
            index = _checked_index(segment, index_key, index_data)
        except CorruptDataError as problem:
            logger.warning("an index is unusable, making it anew", extra={"problem": str(problem)})
            new_index = rebuild_index(segment)
            index = parse_index(index_key, new_index, segment.base_offset)
        cached = CachedSegment(
            reference, [segment.body], HEADER_SIZE, index, partition_number=partition.number
        )
        return cached, new_index

    async def close(self) -> None:
        """End the loads that are under way."""
        await self._loads.close()
        tasks = list(self._index_writes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _checked_index(segment: Segment, key: str, data: bytes | None) -> SparseIndex:
    """The index, every entry of which points at the batch that it names. Raises `CorruptDataError`."""
    if data is None:
        raise CorruptDataError(key, "there is no such object")
    index = parse_index(key, data, segment.base_offset)
    index.check(last_offset=segment.last_offset, body_end=segment.body_end)
    for offset, position in zip(index.offsets, index.positions, strict=True):
        batch = read_header(segment.data, position)
        if (batch.base_offset, batch.magic) != (offset, MAGIC):
            raise CorruptDataError(key, f"there is no batch with offset {offset} at position {position}")
    return index
