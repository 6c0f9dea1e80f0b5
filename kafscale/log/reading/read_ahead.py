"""Best-effort, bounded read-ahead for readers of the object store; failures are ignored."""

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.stored_segment import CacheKey
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# Loads in flight at one time, of all partitions: foreground reads must not wait behind them.
MAX_LOADS_AHEAD = 32
# How far ahead small segments are read. A consumer that takes them one by one fetches again within a millisecond,
# while a store takes 15 or more: so many have to be in flight.
MAX_UNITS_AHEAD = 64
# The bytes that count as one segment of the setting: those of a segment that was flushed because it was full.
_SEGMENT_BYTES = 4 * 1024 * 1024
# Segments that were read ahead and are not used yet may take one part in so many of the cache.
_CACHE_SHARE = 4


class Unit(NamedTuple):
    """The result of one load: a small segment, or the chunk of a large one with `offset`.

    `key` is its key in the cache, `cached` its value there. `is_known`: its end is known; while a large segment's
    chunks are not, `key` is the segment's and `size_bytes` about that of a chunk.
    """

    reference: SegmentReference
    offset: int
    size_bytes: int
    key: CacheKey
    cached: CachedSegment | None
    is_known: bool = True


Load = Callable[[Partition, SegmentReference, int], Coroutine[Any, Any, CachedSegment]]


class ReadAhead:
    """`segments`: how many are read ahead of one reader; more of small ones, up to that many bytes. 0 reads none."""

    def __init__(self, load: Load, segments: int, cache_bytes: int) -> None:
        self._load = load
        self._segments = segments
        self._limit_bytes = cache_bytes // _CACHE_SHARE
        self._unused_bytes = 0
        self._loading_bytes = 0
        self._coming: set[CacheKey] = set()
        self._tasks = TaskOwner()

    def begin(
        self, partition: Partition, following: Iterable[Unit], is_coming: Callable[[CacheKey], bool]
    ) -> None:
        """Start to load the units that follow a read of the store, as far as there is room for them.

        `is_coming`: true for the key of a load that is in flight already.
        """
        units = size_bytes = 0
        for unit in following:
            units += 1
            size_bytes += unit.size_bytes
            is_far = units > self._segments and size_bytes > self._segments * _SEGMENT_BYTES
            if not self._segments or is_far or units > max(self._segments, MAX_UNITS_AHEAD):
                return
            if unit.cached is not None or unit.key in self._coming or is_coming(unit.key):
                continue
            used_bytes = self._unused_bytes + self._loading_bytes + unit.size_bytes
            if len(self._tasks) >= MAX_LOADS_AHEAD or used_bytes > self._limit_bytes:
                return
            self._coming.add(unit.key)
            self._loading_bytes += unit.size_bytes
            self._tasks.spawn(self._run(partition, unit), f"read ahead {partition.id}")

    async def _run(self, partition: Partition, unit: Unit) -> None:
        try:
            segment = await self._load(partition, unit.reference, unit.offset)
        except (StoreError, CorruptDataError) as problem:
            # The fetch that needs the segment reads it again and reports the error to its client.
            logger.info("could not read ahead", extra={"problem": str(problem)})
        else:
            segment.release()
        finally:
            self._coming.discard(unit.key)
            self._loading_bytes -= unit.size_bytes

    def arrived(self, segment: CachedSegment) -> None:
        """Count a segment that was read ahead into the cache."""
        segment.is_ahead = True
        self._unused_bytes += segment.size_bytes

    def wanted(self, segment: CachedSegment) -> None:
        """Count the segment no longer: a reader has used it, or the cache has evicted it."""
        if segment.is_ahead:
            segment.is_ahead = False
            self._unused_bytes -= segment.size_bytes

    async def close(self) -> None:
        """Cancel the loads in flight."""
        await self._tasks.close()
