"""Finds the bytes that a fetch asks for: from the segments in memory, else from the object store."""

import asyncio
import logging
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kafscale.cache.lru import ByteLimitedLru
from kafscale.cache.single_flight import SingleFlight
from kafscale.errors import CorruptDataError, StoreError
from kafscale.metadata.partition_record import SegmentReference
from kafscale.ops.metrics import Metrics
from kafscale.storage.cached_segment import CachedSegment
from kafscale.storage.index import parse_index
from kafscale.storage.partition import Partition
from kafscale.storage.partition_log import SealedSegment
from kafscale.storage.segment import HEADER_SIZE
from kafscale.storage.segment_loader import SegmentLoader
from kafscale.storage.slab import SlabPool

logger = logging.getLogger(__name__)

# A slab less used than this is copied out of, so that the cache does not keep the unused rest.
_KEPT_SLAB_FILL = 0.5
# Segments that are read ahead at one time, of all partitions: foreground reads must not wait behind them.
MAX_LOADS_AHEAD = 6
# What replies that have not left may keep of segments that the cache has let go.
MAX_LINGERING_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class Read:
    """Whole batches of one partition, as views. `segments` are held: release them when the views are gone.

    `is_missing`: there is nothing because the segment with the offset is not in memory.
    """

    views: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0
    segments: list[CachedSegment] = field(default_factory=list)
    is_missing: bool = False

    def detach(self) -> None:
        """Copy the views, so that no segment is held for them."""
        self.views = [memoryview(b"".join(self.views))]
        self.release()

    def release(self) -> None:
        """The views are not used any more."""
        for segment in self.segments:
            segment.release()
        self.segments.clear()


SegmentKey = tuple[int, int, int]
"""A partition's number, and a segment's base and last offset: a merged one begins where its first source did."""


def segment_key(partition: Partition, reference: SegmentReference) -> SegmentKey:
    """What a segment is cached under."""
    return partition.number, reference.base_offset, reference.last_offset


class LogReader:
    """The published segments of all partitions, with the L1 cache in front of the object store."""

    def __init__(
        self,
        loader: SegmentLoader,
        cache_bytes: int,
        read_ahead_segments: int,
        pool: SlabPool,
        metrics: Metrics,
    ) -> None:
        self._loader = loader
        self._read_ahead_segments = read_ahead_segments
        self._pool = pool
        self._cache_metrics = metrics.cache("segment")
        self.cache: ByteLimitedLru[SegmentKey, CachedSegment] = ByteLimitedLru(cache_bytes, self._let_go)
        self._lingering: weakref.WeakSet[CachedSegment] = weakref.WeakSet()
        self._loads: SingleFlight[SegmentKey, CachedSegment] = SingleFlight(
            hand_out=CachedSegment.hold, let_go=CachedSegment.release
        )
        self._ahead: set[asyncio.Task[None]] = set()

    # --- memory

    def _let_go(self, segment: CachedSegment) -> None:
        segment.release()
        if segment.is_held:
            self._lingering.add(segment)

    @property
    def is_short_of_memory(self) -> bool:
        """Whether clients that are slow to take their replies keep too much; no reply should add to it."""
        lingering = sum(segment.size_bytes for segment in self._lingering if segment.is_held)
        return lingering > MAX_LINGERING_BYTES

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
                sealed.reference,
                pieces,
                HEADER_SIZE,
                index,
                partition_number=partition.number,
                pool=self._pool,
            )
            for slab in slabs:
                self._pool.release(slab)
        self.cache.put(segment_key(partition, sealed.reference), segment, segment.size_bytes)

    def forget(self, partition: Partition) -> None:
        """Drop the segments of a partition that is gone."""
        self.forget_segments(partition, partition.references or ())

    def forget_segments(self, partition: Partition, references: Iterable[SegmentReference]) -> None:
        """Drop what the partition's record names no longer, because a merge has replaced it or it expired."""
        for reference in references:
            self.cache.remove(segment_key(partition, reference))

    def missing(self, partition: Partition, offset: int, max_bytes: int) -> list[SegmentReference]:
        """The segments that `read` would want and that are not in memory, at most `max_bytes` of them or one."""
        assert partition.references is not None
        missing = []
        planned_bytes = 0
        for reference in partition.references.from_offset(offset):
            if self.cache.get(segment_key(partition, reference)) is None:
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
        number = partition.number
        at_hand = {
            (number, segment.reference.base_offset, segment.reference.last_offset): segment
            for segment in loaded
        }
        result = Read()
        for reference in partition.references.from_offset(offset):
            key = (number, reference.base_offset, reference.last_offset)
            segment = at_hand.get(key)
            if segment is None:
                segment = self.cache.get(key)
                if segment is None:
                    result.is_missing = not result.segments
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
        if result.segments and result.segments[-1].is_from_store:
            self._read_ahead(partition, result.segments[-1].reference)
        return result

    # --- from the store

    async def load(self, partition: Partition, reference: SegmentReference) -> CachedSegment:
        """The segment, from the store unless it is in memory by now; it comes held.

        Raises `CorruptDataError` when the object is not what the record says, `ObjectNotFoundError`, and
        `StoreError` as the store does.
        """
        key = segment_key(partition, reference)
        cached = self.cache.get(key)
        if cached is not None:
            return cached.hold()
        self._cache_metrics.misses += 1
        return await self._loads.run(key, lambda: self._load(partition, reference))

    async def _load(self, partition: Partition, reference: SegmentReference) -> CachedSegment:
        segment = await self._loader.load(partition, reference)
        # The cache may drop it at once: this hold lasts until every caller has its own.
        segment.hold()
        self.cache.put(segment_key(partition, reference), segment, segment.size_bytes)
        return segment

    # --- ahead of the readers

    def _read_ahead(self, partition: Partition, after: SegmentReference) -> None:
        """Begin to load what a reader of the store will want next, as far as there is room for it."""
        assert partition.references is not None
        following = islice(partition.references.from_offset(after.last_offset + 1), self._read_ahead_segments)
        for reference in following:
            key = segment_key(partition, reference)
            if key in self.cache or key in self._loads:
                continue
            if len(self._ahead) >= MAX_LOADS_AHEAD or reference.size_bytes > self.cache.limit_bytes // 8:
                return
            task = asyncio.create_task(
                self._load_ahead(partition, reference), name=f"read ahead {partition.id}"
            )
            self._ahead.add(task)
            task.add_done_callback(self._ahead.discard)

    async def _load_ahead(self, partition: Partition, reference: SegmentReference) -> None:
        try:
            (await self.load(partition, reference)).release()
        except (StoreError, CorruptDataError) as problem:
            # Whoever needs the segment reads it again and tells its client.
            logger.info("could not read ahead", extra={"problem": str(problem)})

    async def close(self) -> None:
        """End the loads that are under way."""
        tasks = list(self._ahead)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loads.close()
        await self._loader.close()
