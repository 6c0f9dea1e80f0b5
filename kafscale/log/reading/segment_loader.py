"""Reads published segments from the object store, and checks everything that it uses of them.

A segment that is not large is read whole, with one request. A large one is read in chunks, each with one request;
the L2 cache (segment_layouts.py) knows where they start. Damaged data is read once more, from the primary.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_walk import BrokenChainError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE
from kafscale.formats.segment_check import (
    OtherTopicError,
    UncertainChunkError,
    check_chunk,
    check_whole,
    wanted_bytes,
)
from kafscale.formats.segment_layout import SegmentLayout
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.load_notes import note_check, note_get
from kafscale.log.reading.segment_layouts import SegmentLayouts
from kafscale.log.reading.stored_segment import StoredSegment, stored_segment
from kafscale.memory.pieces import Pieces
from kafscale.memory.slab import Slab, SlabPool
from kafscale.objects.object_store import ObjectReader, ObjectStore
from kafscale.ops.metrics import Metrics

logger = logging.getLogger(__name__)

KIB, MIB = 1024, 1024 * 1024
WHOLE_SEGMENT_BYTES = 16 * MIB
# A segment is never read whole where it would be a large part of the cache; a smaller limit would be slow.
_CACHE_SHARE = 8
_LEAST_WHOLE_BYTES = MIB
# Room in the same slabs for what is read beside a chunk.
_BESIDE_BYTES = KIB
# Checking more than this takes long enough to be felt on the event loop.
_COSTLY_BYTES = 32 * KIB
# Less than this is not worth a slab: the smallest that segments are read into is 1 MiB.
_SLAB_BYTES = 512 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSizes:
    """A segment of up to `whole_bytes` is read whole; a larger one in chunks of about `chunk_bytes`."""

    whole_bytes: int
    chunk_bytes: int


def read_sizes(cache_bytes: int) -> ReadSizes:
    """The sizes that fit an L1 cache of this size."""
    whole_bytes = min(WHOLE_SEGMENT_BYTES, max(cache_bytes // _CACHE_SHARE, _LEAST_WHOLE_BYTES))
    return ReadSizes(whole_bytes=whole_bytes, chunk_bytes=whole_bytes // 2 - _BESIDE_BYTES)


class SegmentLoader:
    """The way from a reference to the segment's batches in memory.

    `objects`: where everything is read first, perhaps a replica; `primary`: where damaged data is read the second
    time, and where indexes are written, in the version that `index_version` returns.
    """

    def __init__(
        self,
        objects: ObjectReader,
        primary: ObjectStore,
        namespace: str,
        pool: SlabPool,
        metrics: Metrics,
        *,
        sizes: ReadSizes,
        index_cache_bytes: int,
        index_version: Callable[[], int],
    ) -> None:
        self.sizes = sizes
        self._objects = objects
        self._primary = primary
        self._namespace = namespace
        self._pool = pool
        self.layouts = SegmentLayouts(
            objects,
            primary,
            metrics,
            limit_bytes=index_cache_bytes,
            chunk_bytes=sizes.chunk_bytes,
            index_version=index_version,
        )

    def segment(self, partition: Partition, reference: SegmentReference) -> StoredSegment:
        """The segment, by the partition's record as it is now."""
        return stored_segment(self._namespace, partition, reference)

    async def load(self, segment: StoredSegment) -> CachedSegment:
        """The whole segment.

        Raises `CorruptDataError` if the object disagrees with the record twice (`OtherTopicError` if only its leader
        epochs do), `ObjectNotFoundError`, and `StoreError` as the store does.
        """
        try:
            return await self._read_whole(self._objects, segment)
        except OtherTopicError as problem:
            logger.info("an object has other leader epochs than its record", extra={"problem": str(problem)})
        except CorruptDataError as problem:
            # The transfer may have damaged it.
            logger.warning("a segment is damaged, reading it again", extra={"problem": str(problem)})
        return await self._read_whole(self._primary, segment)

    async def load_chunk(self, segment: StoredSegment, offset: int) -> CachedSegment:
        """The chunk of a large segment with `offset`. Raises as `load` does."""
        layout = await self.layouts.get(segment)
        try:
            return await self._read_chunk(self._objects, segment, layout, offset)
        except UncertainChunkError as problem:
            logger.info("verifying a segment", extra={"problem": str(problem)})
            layout = await self.layouts.verified(segment, index_is_wrong=False)
            return await self._read_chunk(self._primary, segment, layout, offset)
        except OtherTopicError as problem:
            logger.info("an object has other leader epochs than its record", extra={"problem": str(problem)})
        except CorruptDataError as problem:
            logger.warning("a segment is damaged, reading it again", extra={"problem": str(problem)})
        layout = await self.layouts.read_again(segment)
        try:
            return await self._read_chunk(self._primary, segment, layout, offset)
        except (UncertainChunkError, BrokenChainError) as problem:
            if layout.is_verified:
                raise
            logger.warning("an index may be wrong, verifying its segment", extra={"problem": str(problem)})
            index_is_wrong = isinstance(problem, BrokenChainError)
        layout = await self.layouts.verified(segment, index_is_wrong=index_is_wrong)
        return await self._read_chunk(self._primary, segment, layout, offset)

    # --- one attempt

    async def _read_whole(self, objects: ObjectReader, segment: StoredSegment) -> CachedSegment:
        expected, reference = segment.expected, segment.reference
        is_from_replica = objects is not self._primary
        memory = _Memory(self._pool, reference.size_bytes)
        try:
            note_get()
            count = await objects.read_into(
                segment.object_key, reference.start, reference.size_bytes, memory.targets
            )
            began_sec = time.perf_counter()
            expected.check_length(count, reference.size_bytes)
            file = memory.content()
            if reference.size_bytes <= _COSTLY_BYTES:
                index = check_whole(expected, file, is_from_replica=is_from_replica)
            else:
                index = await asyncio.to_thread(check_whole, expected, file, is_from_replica=is_from_replica)
            note_check(began_sec, time.perf_counter())
        except BaseException:
            memory.release()
            raise
        return CachedSegment(
            reference,
            file.slices(HEADER_SIZE, expected.body_end),
            HEADER_SIZE,
            index,
            partition_number=segment.key[0],
            slabs=memory.slabs,
            pool=self._pool,
            is_from_store=True,
        )

    async def _read_chunk(
        self, objects: ObjectReader, segment: StoredSegment, layout: SegmentLayout, offset: int
    ) -> CachedSegment:
        expected, chunk = segment.expected, layout.at_offset(offset)
        start, length = wanted_bytes(expected, chunk)
        memory = _Memory(self._pool, length)
        try:
            note_get()
            count = await objects.read_into(
                segment.object_key, segment.reference.start + start, length, memory.targets
            )
            began_sec = time.perf_counter()
            expected.check_length(count, length)
            file = memory.content(start)
            index, max_timestamp_ms = await asyncio.to_thread(
                check_chunk, expected, chunk, file, is_from_replica=objects is not self._primary
            )
            note_check(began_sec, time.perf_counter())
        except BaseException:
            memory.release()
            raise
        layout.note_max_timestamp(chunk.first_offset, max_timestamp_ms)
        return CachedSegment(
            segment.reference,
            file.slices(chunk.start, chunk.end),
            chunk.start,
            index,
            partition_number=segment.key[0],
            first_offset=chunk.first_offset,
            next_offset=chunk.next_offset,
            slabs=memory.slabs,
            pool=self._pool,
            is_from_store=True,
        )

    async def close(self) -> None:
        """Cancel loads, scans and index writes."""
        await self.layouts.close()


class _Memory:
    """The memory that one read fills: slabs, unless it would leave most of them empty."""

    __slots__ = ("_pool", "slabs", "targets")

    def __init__(self, pool: SlabPool, size_bytes: int) -> None:
        self._pool = pool
        self.slabs: list[Slab] = []
        if size_bytes >= _SLAB_BYTES:
            self.slabs = pool.acquire_together(size_bytes)
            if sum(slab.capacity_bytes for slab in self.slabs) > 2 * size_bytes:
                self.release()
        self.targets = [slab.content() for slab in self.slabs] or [memoryview(bytearray(size_bytes))]

    def content(self, start: int = 0) -> Pieces:
        """The bytes that were read, from the position `start` on."""
        return Pieces(self.targets, start)

    def release(self) -> None:
        """Give the memory back: no view of it is left."""
        for slab in self.slabs:
            self._pool.release(slab)
        self.slabs = []
