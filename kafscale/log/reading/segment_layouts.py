"""The L2 cache: where the chunks of large segments start, from their indexes, or from the segments themselves.

An index that is missing, damaged, of an unknown version or wrong is rebuilt from its segment and written back.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import aclosing

from kafscale.cache.lru import ByteLimitedLru
from kafscale.cache.single_flight import SingleFlight
from kafscale.errors import CorruptDataError, ObjectNotFoundError, StoreError
from kafscale.formats.index import IndexOffsetError, parse_index
from kafscale.formats.segment_layout import SegmentLayout, layout_of
from kafscale.formats.segment_scan import SegmentScan
from kafscale.log.reading.load_notes import note_get, note_index
from kafscale.log.reading.stored_segment import SegmentKey, StoredSegment
from kafscale.objects.object_store import ObjectReader, ObjectStore
from kafscale.ops.metrics import Metrics
from kafscale.tasks.bounded import in_order_ahead
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

PIECE_BYTES = 2 * 1024 * 1024
# With the size of a piece this bounds the memory of a scan.
_PIECES_AHEAD = 4
# Scans in progress at one time; each reads a whole large segment.
_SCANS_AT_ONCE = 2
# How long a segment that was found damaged is not scanned again, however often clients fetch it.
DAMAGE_REMEMBERED_SEC = 60.0
_DAMAGES_REMEMBERED = 1000


class SegmentLayouts:
    """Layouts by segment. `objects`: where indexes are read first; `primary`: where they are read again, where
    whole segments are scanned, and where new indexes are written in the version `index_version`.
    """

    def __init__(
        self,
        objects: ObjectReader,
        primary: ObjectStore,
        metrics: Metrics,
        *,
        limit_bytes: int,
        chunk_bytes: int,
        index_version: Callable[[], int],
    ) -> None:
        self._objects = objects
        self._primary = primary
        self._metrics = metrics
        self._cache_metrics = metrics.cache("index")
        self._chunk_bytes = chunk_bytes
        self._index_version = index_version
        self.cache: ByteLimitedLru[SegmentKey, SegmentLayout] = ByteLimitedLru(
            limit_bytes, lambda layout: None
        )
        self._loads: SingleFlight[SegmentKey, SegmentLayout] = SingleFlight()
        self._scans: SingleFlight[SegmentKey, SegmentLayout] = SingleFlight()
        self._scan_turns = asyncio.Semaphore(_SCANS_AT_ONCE)
        self._damages: OrderedDict[SegmentKey, tuple[float, str]] = OrderedDict()
        self._index_writes = TaskOwner()

    def cached(self, key: SegmentKey) -> SegmentLayout | None:
        """The layout, if it is in memory."""
        return self.cache.get(key)

    async def get(self, segment: StoredSegment) -> SegmentLayout:
        """The layout, from the store unless it is in memory.

        Raises `CorruptDataError` if the segment itself is damaged, `ObjectNotFoundError`, `StoreError`.
        """
        layout = self.cache.get(segment.key)
        if layout is not None:
            self._cache_metrics.hits += 1
            note_index(is_cached=True)
            return layout
        self._cache_metrics.misses += 1
        note_index(is_cached=False)
        return await self._loads.run(segment.key, lambda: self._load(segment, self._objects))

    async def read_again(self, segment: StoredSegment) -> SegmentLayout:
        """The layout by the primary's index, unless a verified one is in memory."""
        layout = self.cache.get(segment.key)
        if layout is not None and layout.is_verified:
            return layout
        return await self._load(segment, self._primary)

    async def verified(self, segment: StoredSegment, *, index_is_wrong: bool) -> SegmentLayout:
        """The layout by the segment itself, which is read as a whole, piece by piece. Raises as `get` does."""
        layout = self.cache.get(segment.key)
        if layout is not None and layout.is_verified:
            return layout
        return await self._scans.run(segment.key, lambda: self._verify(segment, index_is_wrong))

    def remove(self, key: SegmentKey) -> None:
        """Remove the layout of a segment that is gone."""
        self.cache.remove(key)

    def _put(self, key: SegmentKey, layout: SegmentLayout) -> SegmentLayout:
        self.cache.put(key, layout, layout.size_bytes)
        self._cache_metrics.evictions = self.cache.evictions
        return layout

    # --- by the index

    async def _load(self, segment: StoredSegment, objects: ObjectReader) -> SegmentLayout:
        if not segment.has_index:
            return await self.verified(segment, index_is_wrong=False)
        try:
            note_get()
            data = await objects.get(segment.index_key)
            layout = await asyncio.to_thread(_parsed, segment, data, self._chunk_bytes)
        except ObjectNotFoundError:
            problem: Exception = CorruptDataError(segment.index_key, "there is no such object")
        except CorruptDataError as damage:
            problem = damage
        else:
            if layout.is_coarse:
                return await self.verified(segment, index_is_wrong=False)
            return self._put(segment.key, layout)
        if objects is not self._primary:
            return await self._load(segment, self._primary)
        logger.warning("an index is unusable, rebuilding it", extra={"problem": str(problem)})
        return await self.verified(segment, index_is_wrong=True)

    # --- by the segment

    async def _verify(self, segment: StoredSegment, index_is_wrong: bool) -> SegmentLayout:
        now_sec = asyncio.get_running_loop().time()
        until_sec, problem = self._damages.get(segment.key, (now_sec, ""))
        if until_sec > now_sec:
            raise CorruptDataError(segment.object_key, problem)
        async with self._scan_turns:
            try:
                scan, layout = await self._scan(segment)
            except CorruptDataError as damage:
                logger.warning("a segment is damaged, reading it again", extra={"problem": str(damage)})
                scan, layout = await self._scan_again(segment)
        if index_is_wrong and segment.has_index:
            self._write_index(segment, scan)
        return self._put(segment.key, layout)

    async def _scan_again(self, segment: StoredSegment) -> tuple[SegmentScan, SegmentLayout]:
        try:
            return await self._scan(segment)
        except CorruptDataError as damage:
            until_sec = asyncio.get_running_loop().time() + DAMAGE_REMEMBERED_SEC
            self._damages[segment.key] = until_sec, damage.problem
            while len(self._damages) > _DAMAGES_REMEMBERED:
                self._damages.popitem(last=False)
            raise

    async def _scan(self, segment: StoredSegment) -> tuple[SegmentScan, SegmentLayout]:
        reference = segment.reference
        scan = SegmentScan(segment.object_key, reference, self._chunk_bytes)
        positions = range(0, reference.size_bytes, PIECE_BYTES)

        async def read(position: int) -> bytes:
            note_get()
            length = min(PIECE_BYTES, reference.size_bytes - position)
            return await self._primary.get_range(segment.object_key, reference.start + position, length)

        async with aclosing(in_order_ahead(read, positions, _PIECES_AHEAD)) as pieces:
            async for piece in pieces:
                await asyncio.to_thread(scan.feed, memoryview(piece))
        return scan, scan.finish()

    def _write_index(self, segment: StoredSegment, scan: SegmentScan) -> None:
        self._metrics.index_rebuilds += 1
        self._index_writes.spawn(self._put_index(segment, scan), f"rewrite {segment.index_key}")

    async def _put_index(self, segment: StoredSegment, scan: SegmentScan) -> None:
        try:
            index = await asyncio.to_thread(scan.index, self._index_version())
            await self._primary.put(segment.index_key, [index])
        except (StoreError, IndexOffsetError) as problem:
            # The next reader that finds it unusable retries.
            logger.warning(
                "could not rewrite an index", extra={"key": segment.index_key, "problem": str(problem)}
            )

    async def close(self) -> None:
        """Cancel loads, scans and index writes."""
        await self._loads.close()
        await self._scans.close()
        await self._index_writes.close()


def _parsed(segment: StoredSegment, data: bytes, chunk_bytes: int) -> SegmentLayout:
    reference, body_end = segment.reference, segment.expected.body_end
    index = parse_index(segment.index_key, data, reference.base_offset)
    index.check(last_offset=reference.last_offset, body_end=body_end)
    return layout_of(index, last_offset=reference.last_offset, body_end=body_end, chunk_bytes=chunk_bytes)
