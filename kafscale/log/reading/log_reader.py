"""Finds the bytes for a fetch: in the segments in memory, else in the object store."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from kafscale.cache.lru import ByteLimitedLru
from kafscale.cache.single_flight import SingleFlight
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_chunks import CachedChunks
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.read import Read
from kafscale.log.reading.read_ahead import ReadAhead, Unit
from kafscale.log.reading.reply_memory import ReplyMemory
from kafscale.log.reading.segment_loader import SegmentLoader, read_sizes
from kafscale.log.reading.stored_segment import CacheKey, SegmentKey, segment_key
from kafscale.log.reading.written_segments import combined_segment, published_segment
from kafscale.log.sealed_segment import SealedSegment
from kafscale.memory.slab import SlabPool
from kafscale.objects.object_store import ObjectReader, ObjectStore
from kafscale.ops import metric_families
from kafscale.ops.metrics import Metrics
from kafscale.protocol.types import Buffer
from kafscale.settings.broker import Settings
from kafscale.tasks.thread_turns import ThreadTurns

logger = logging.getLogger(__name__)

# The most segments that one read takes records from: it must not block the event loop for long.
MAX_SEGMENTS_PER_READ = 512
# Views smaller than this on average are joined: many small ones cost more to write out than the copy does.
_SMALL_VIEW_BYTES = 4 * 1024
_MANY_VIEWS = 16


class Missing(NamedTuple):
    """A load that is needed: the small segment, or the chunk of a large one with `offset`."""

    reference: SegmentReference
    offset: int


def _by_segment(segments: Sequence[CachedSegment]) -> dict[SegmentKey, list[CachedSegment]]:
    found: dict[SegmentKey, list[CachedSegment]] = {}
    for segment in segments:
        found.setdefault(segment.segment_key, []).append(segment)
    return found


class LogReader:
    """The published segments of all partitions, with the L1 cache in front of the object store.

    `scans`: the threads for reads into loaded batches.
    """

    def __init__(
        self,
        loader: SegmentLoader,
        cache_bytes: int,
        read_ahead_segments: int,
        pool: SlabPool,
        metrics: Metrics,
    ) -> None:
        self._loader = loader
        self._whole_bytes = loader.sizes.whole_bytes
        self._layouts = loader.layouts
        self._pool = pool
        self._metrics = metrics.cache("segment")
        self.cache: ByteLimitedLru[CacheKey, CachedSegment] = ByteLimitedLru(cache_bytes, self._evicted)
        self._chunks = CachedChunks()
        self._reply_memory = ReplyMemory()
        self.scans = ThreadTurns()
        self._loads: SingleFlight[CacheKey, CachedSegment] = SingleFlight(
            hand_out=CachedSegment.hold, release=CachedSegment.release
        )
        self._ahead = ReadAhead(partial(self._load, is_ahead=True), read_ahead_segments, cache_bytes)

    def register_gauges(self, metrics: Metrics) -> None:
        """Export how full the caches are."""
        gauge, segments, indexes = metrics.gauge, self.cache, self._layouts.cache
        gauge(metric_families.CACHE_USED, lambda: segments.used_bytes, cache="segment")
        gauge(metric_families.CACHE_LIMIT, lambda: segments.limit_bytes, cache="segment")
        gauge(metric_families.CACHE_USED, lambda: indexes.used_bytes, cache="index")
        gauge(metric_families.CACHE_LIMIT, lambda: indexes.limit_bytes, cache="index")

    # --- memory

    def _keep(self, segment: CachedSegment, *, is_ahead: bool = False) -> None:
        key = segment.key
        self.cache.put(key, segment, segment.size_bytes)
        self._metrics.evictions = self.cache.evictions
        if key in self.cache:
            if not segment.is_whole:
                self._chunks.add(segment.segment_key, segment)
            if is_ahead:
                self._ahead.arrived(segment)

    def _evicted(self, segment: CachedSegment) -> None:
        if not segment.is_whole:
            self._chunks.remove(segment.segment_key, segment)
        self._ahead.wanted(segment)
        segment.release()
        self._reply_memory.linger(segment)

    @property
    def is_short_of_memory(self) -> bool:
        """True if clients that are slow to read their replies keep too much; no reply should add to it."""
        return self._reply_memory.is_too_much

    def add_published(self, partition: Partition, sealed: SealedSegment) -> None:
        """Take over the memory of a segment that has just been published."""
        self._keep(published_segment(partition, sealed, self._pool))

    def copy_of(self, partition: Partition, reference: SegmentReference) -> bytes | None:
        """The batches of a segment that is in memory as a whole, else None."""
        held = self.cache.get(segment_key(partition, reference))
        if held is None or not held.is_whole:
            return None
        return b"".join(held.slices(HEADER_SIZE, held.end))

    def written(self, partition: Partition, reference: SegmentReference) -> CachedSegment | None:
        """The segment, if this broker wrote it and has all of it in memory."""
        held = self.cache.get(segment_key(partition, reference))
        return None if held is None or held.is_from_store or not held.is_whole else held

    def replace_slices(
        self,
        partition: Partition,
        sources: Sequence[SegmentReference],
        reference: SegmentReference,
        batches: bytes,
        index_entries: Sequence[tuple[int, int, int]],
    ) -> None:
        """Keep what slices were combined into in their place, as far as they were in memory until now."""
        was_here = any(segment_key(partition, one) in self.cache for one in sources)
        self.forget_segments(partition, sources)
        if was_here:
            self._keep(combined_segment(partition, reference, batches, index_entries))

    def forget(self, partition: Partition) -> None:
        """Remove the segments of a deleted partition from the caches."""
        self.forget_segments(partition, partition.references or ())

    def forget_segments(self, partition: Partition, references: Iterable[SegmentReference]) -> None:
        """Remove segments from the caches that the partition's record no longer names: merged or expired."""
        for reference in references:
            key = segment_key(partition, reference)
            self.cache.remove(key)
            for chunk in self._chunks.of(key):
                self.cache.remove(chunk.key)
            self._layouts.remove(key)

    # --- from memory

    def has(self, partition: Partition, offset: int, max_bytes: int, end_offset: int | None = None) -> bool:
        """True if everything that `read` would want is in memory."""
        assert partition.references is not None
        number, get = partition.number, self.cache.get
        planned_bytes = 0
        for reference in islice(partition.references.from_offset(offset), MAX_SEGMENTS_PER_READ):
            if end_offset is not None and reference.base_offset >= end_offset:
                break
            if get((number, reference.base_offset, reference.object_key)) is None:
                return not self.plan(
                    partition, max(offset, reference.base_offset), max_bytes - planned_bytes, end_offset
                )[1]
            planned_bytes += reference.size_bytes
            if planned_bytes >= max_bytes:
                break
        return True

    def has_first(
        self,
        partition: Partition,
        offset: int,
        loaded: Sequence[CachedSegment],
        end_offset: int | None = None,
    ) -> bool:
        """True if what `read` would want first is in memory or among `loaded`, or if nothing is wanted."""
        assert partition.references is not None
        reference = next(iter(partition.references.from_offset(offset)), None)
        if reference is None:
            return True
        first = max(offset, reference.base_offset)
        if end_offset is not None and first >= end_offset:
            return True
        return self._in_memory(segment_key(partition, reference), first, _by_segment(loaded)) is not None

    def plan(
        self, partition: Partition, offset: int, max_bytes: int, end_offset: int | None = None
    ) -> tuple[list[CachedSegment], list[Missing]]:
        """The units that `read` would want, in memory and missing: up to `max_bytes`, at least one.

        Of a large segment whose chunks are unknown it is one chunk: its load finds out where it ends.
        """
        cached: list[CachedSegment] = []
        missing: list[Missing] = []
        planned_bytes = 0
        for unit in islice(self._units_from(partition, offset), MAX_SEGMENTS_PER_READ):
            if end_offset is not None and unit.offset >= end_offset:
                break
            if unit.cached is None:
                missing.append(Missing(unit.reference, unit.offset))
            else:
                cached.append(unit.cached)
            planned_bytes += unit.size_bytes
            if planned_bytes >= max_bytes or not unit.is_known:
                break
        return cached, missing

    def _units_from(self, partition: Partition, offset: int) -> Iterator[Unit]:
        """The units that a reader wants from `offset` on, as far as they are known."""
        assert partition.references is not None
        for reference in partition.references.from_offset(offset):
            key = segment_key(partition, reference)
            cached = self.cache.get(key)
            if cached is not None or reference.size_bytes <= self._whole_bytes:
                yield Unit(reference, reference.base_offset, reference.size_bytes, key, cached)
            else:
                yield from self._chunks_from(partition, reference, offset)

    def _chunks_from(self, partition: Partition, reference: SegmentReference, offset: int) -> Iterator[Unit]:
        """The chunks of a large segment from the one with `offset` on; only that one if they are unknown."""
        key = segment_key(partition, reference)
        offset = max(offset, reference.base_offset)
        while offset <= reference.last_offset:
            chunk = self._chunks.find(key, offset)
            if chunk is not None:
                yield Unit(reference, offset, chunk.size_bytes, chunk.key, chunk)
                offset = chunk.next_offset
                continue
            layout = self._layouts.cached(key)
            if layout is None:
                size_bytes = self._loader.sizes.chunk_bytes
                yield Unit(reference, offset, size_bytes, key, None, is_known=False)
                return
            found = layout.at_offset(offset)
            yield Unit(reference, offset, found.size_bytes, (*key, found.start), None)
            offset = found.next_offset

    def read(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        at_least_one: bool,
        loaded: Sequence[CachedSegment] = (),
        end_offset: int | None = None,
    ) -> Read:
        """Batches from the one with `offset` on, up to `max_bytes`, as far as they are in memory.

        With `at_least_one` the first batch is returned even if it is larger. `loaded` are segments that the caller
        holds although the cache may have evicted them. No batch with `end_offset` or above is returned.
        """
        assert partition.references is not None
        number, at_hand = partition.number, _by_segment(loaded) if loaded else None
        result, size_bytes = Read(), 0
        for reference in islice(partition.references.from_offset(offset), MAX_SEGMENTS_PER_READ):
            base_offset, last_offset = reference.base_offset, reference.last_offset
            if end_offset is not None:
                if base_offset >= end_offset:
                    break
                last_offset = min(last_offset, end_offset - 1)
            if offset < base_offset:
                if offset >= partition.record.log_start_offset:
                    _log_gap(partition, offset, base_offset)
                offset = base_offset
            # Once for a small segment, once for each chunk of a large one.
            while offset <= last_offset:
                segment = self._in_memory((number, base_offset, reference.object_key), offset, at_hand)
                if segment is None:
                    result.is_missing = not result.segments
                    return self._finished(partition, result)
                start = segment.position_of(offset)
                end = segment.limit(start, max_bytes - size_bytes, at_least_one and not size_bytes)
                if end_offset is not None and segment.next_offset > end_offset:
                    end = min(end, segment.position_of(end_offset))
                if end > start:
                    result.segments.append(segment.hold())
                    result.views.extend(segment.slices(start, end))
                    result.size_bytes = size_bytes = size_bytes + end - start
                    result.next_offset = segment.offset_at(end)
                    result.record_count += result.next_offset - segment.offset_at(start)
                if end < segment.end or size_bytes >= max_bytes:
                    return self._finished(partition, result)
                offset = segment.next_offset
        return self._finished(partition, result)

    def _finished(self, partition: Partition, read: Read) -> Read:
        if read.segments and read.segments[-1].is_from_store:
            following = self._units_from(partition, read.segments[-1].next_offset)
            self._ahead.begin(partition, following, self._loads.__contains__)
        views = len(read.views)
        if views >= _MANY_VIEWS and read.size_bytes < _SMALL_VIEW_BYTES * views:
            read.join(self._reply_memory)
        return read

    def replace(self, read: Read, parts: Sequence[Buffer], size_bytes: int, record_count: int) -> None:
        """Replace the bytes of a read: `parts` may be views of it, too."""
        read.replace(self._reply_memory, [memoryview(part) for part in parts], size_bytes, record_count)

    def _in_memory(
        self,
        key: SegmentKey,
        offset: int,
        at_hand: Mapping[SegmentKey, Sequence[CachedSegment]] | None,
    ) -> CachedSegment | None:
        """The segment, or its chunk with `offset`, if it is in memory."""
        if at_hand is not None:
            for held in at_hand.get(key, ()):
                if held.covers(offset):
                    if held.is_ahead:
                        self._ahead.wanted(held)
                    return held
        segment = self.cache.get(key)
        if segment is None:
            segment = self._chunks.find(key, offset)
            if segment is None:
                return None
            self.cache.get(segment.key)
        self._metrics.hits += 1
        if segment.is_ahead:
            self._ahead.wanted(segment)
        return segment

    # --- from the store

    async def load(self, partition: Partition, reference: SegmentReference, offset: int) -> CachedSegment:
        """A small segment, or the chunk of a large one with `offset`, held for the caller.

        It is read from the store unless it is in memory. Raises `CorruptDataError` if the object does not agree
        with the record, `ObjectNotFoundError`, and `StoreError` as the store does.
        """
        return await self._load(partition, reference, offset, is_ahead=False)

    async def _load(
        self, partition: Partition, reference: SegmentReference, offset: int, *, is_ahead: bool
    ) -> CachedSegment:
        key = segment_key(partition, reference)
        cached = self.cache.get(key) or self._chunks.find(key, offset)
        if cached is not None:
            return cached.hold()
        if not is_ahead:
            self._metrics.misses += 1
        segment = self._loader.segment(partition, reference)
        if reference.size_bytes <= self._whole_bytes:
            return await self._loads.run(key, lambda: self._loaded(self._loader.load(segment), is_ahead))
        while True:
            start = (await self._layouts.get(segment)).at_offset(offset).start
            loaded = await self._loads.run(
                (*key, start), lambda: self._loaded(self._loader.load_chunk(segment, offset), is_ahead)
            )
            # The load may be another reader's, for another part of a chunk that has turned out to be several.
            if loaded.covers(offset):
                return loaded
            loaded.release()

    async def _loaded(self, loading: Awaitable[CachedSegment], is_ahead: bool) -> CachedSegment:
        segment = await loading
        # The cache may evict it at once: this hold lasts until every caller has its own.
        segment.hold()
        self._keep(segment, is_ahead=is_ahead)
        return segment

    def skip_before(
        self, partition: Partition, reference: SegmentReference, offset: int, timestamp_ms: int
    ) -> int:
        """The first offset from `offset` on whose chunk may have a timestamp that late."""
        layout = self._layouts.cached(segment_key(partition, reference))
        while layout is not None and offset <= reference.last_offset:
            if not layout.is_before(offset, timestamp_ms):
                break
            offset = layout.at_offset(offset).next_offset
        return offset

    async def close(self) -> None:
        """Cancel the loads in flight."""
        await self._ahead.close()
        await self._loads.close()
        await self._loader.close()


def _log_gap(partition: Partition, offset: int, following: int) -> None:
    """Buckets of releases without journals have such gaps; without one, records would be missing."""
    logger.info(
        "a reader passes offsets that no segment has",
        extra={"partition": str(partition.id), "first": offset, "before": following},
    )


def log_reader(
    objects: ObjectReader,
    primary: ObjectStore,
    settings: Settings,
    pool: SlabPool,
    metrics: Metrics,
    index_version: Callable[[], int],
) -> LogReader:
    """A reader with caches by the settings. `objects`, `primary` and `index_version`: see `SegmentLoader`."""
    loader = SegmentLoader(
        objects,
        primary,
        settings.s3_namespace,
        pool,
        metrics,
        sizes=read_sizes(settings.cache_size_bytes),
        index_cache_bytes=settings.index_cache_size_bytes,
        index_version=index_version,
    )
    return LogReader(loader, settings.cache_size_bytes, settings.read_ahead_segments, pool, metrics)
