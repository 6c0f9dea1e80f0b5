"""Loads what readers of the object store will want next: bounded, as well as may be, and nobody's error."""

import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# Loads that are under way at one time, of all partitions: foreground reads must not wait behind them.
MAX_LOADS_AHEAD = 32
# How far ahead small segments are read. A consumer that takes them one by one asks again within a millisecond,
# while a store takes 15 or more: so many have to be on their way.
MAX_UNITS_AHEAD = 64
# The bytes that stand for one segment of the setting: as many as a segment has that was flushed because it was full.
_SEGMENT_BYTES = 4 * 1024 * 1024
# What was read ahead and is not wanted yet may take this part of the cache.
_CACHE_SHARE = 4


class Unit(NamedTuple):
    """What one load brings: a small segment, or the chunk of a large one that holds `offset`.

    `key` is what it is cached under, `cached` is not None if it is. `is_known`: whether it is known how far it
    reaches; while a large segment's chunks are not, `key` is the segment's and `size_bytes` about that of a chunk.
    """

    reference: SegmentReference
    offset: int
    size_bytes: int
    key: tuple[int, ...]
    cached: CachedSegment | None
    is_known: bool = True


Load = Callable[[Partition, SegmentReference, int], Coroutine[Any, Any, CachedSegment]]


class ReadAhead:
    """`segments`: how many are read ahead of one reader; more of small ones, up to as many bytes. 0 reads none."""

    def __init__(self, load: Load, segments: int, cache_bytes: int) -> None:
        self._load = load
        self._segments = segments
        self._limit_bytes = cache_bytes // _CACHE_SHARE
        self._unused_bytes = 0
        self._loading_bytes = 0
        self._coming: set[tuple[int, ...]] = set()
        self._tasks = TaskOwner()

    def begin(
        self, partition: Partition, following: Iterable[Unit], is_coming: Callable[[tuple[int, ...]], bool]
    ) -> None:
        """Begin to load what follows a read of the store, as far as there is room for it.

        `is_coming`: whether the load of what has the key is under way already.
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
            # Whoever needs the segment reads it again and tells its client.
            logger.info("could not read ahead", extra={"problem": str(problem)})
        else:
            segment.release()
        finally:
            self._coming.discard(unit.key)
            self._loading_bytes -= unit.size_bytes

    def arrived(self, segment: CachedSegment) -> None:
        """The segment is in the cache because somebody may want it soon."""
        segment.is_ahead = True
        self._unused_bytes += segment.size_bytes

    def wanted(self, segment: CachedSegment) -> None:
        """Somebody does, or the cache has let go of it: it is not ahead of anybody any more."""
        if segment.is_ahead:
            segment.is_ahead = False
            self._unused_bytes -= segment.size_bytes

    async def close(self) -> None:
        """End the loads that are under way."""
        await self._tasks.close()
