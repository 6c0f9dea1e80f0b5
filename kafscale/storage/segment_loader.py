"""Reads a published segment from the object store, and believes nothing of it that it has not checked."""

import asyncio
import logging

from kafscale.errors import CorruptDataError, ObjectNotFoundError, StoreError
from kafscale.metadata.partition_record import SegmentReference
from kafscale.ops.metrics import Metrics
from kafscale.protocol.record_batch import MAGIC, read_header
from kafscale.storage import object_keys
from kafscale.storage.cached_segment import CachedSegment
from kafscale.storage.index import SparseIndex, parse_index, rebuild_index
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.partition import Partition
from kafscale.storage.segment import HEADER_SIZE, Segment, body_crc, parse_segment
from kafscale.storage.slab import Slab, SlabPool

logger = logging.getLogger(__name__)


class SegmentLoader:
    """The way from a reference to the segment's batches in memory."""

    def __init__(self, objects: ObjectStore, namespace: str, pool: SlabPool, metrics: Metrics) -> None:
        self._objects = objects
        self._pool = pool
        self._namespace = namespace
        self._metrics = metrics
        self._index_writes: set[asyncio.Task[None]] = set()

    async def load(self, partition: Partition, reference: SegmentReference) -> CachedSegment:
        """The segment. An index that is missing or wrong is made anew and written back.

        Raises `CorruptDataError` when the object is, twice, not what the record says, `ObjectNotFoundError`,
        and `StoreError` as the store does.
        """
        try:
            return await self._get(partition, reference)
        except CorruptDataError as problem:
            # Once more from the store: what was damaged may have been the transfer.
            logger.warning("a segment is damaged, reading it again", extra={"problem": str(problem)})
            return await self._get(partition, reference)

    async def _get(self, partition: Partition, reference: SegmentReference) -> CachedSegment:
        topic, number = partition.id.topic, partition.id.index
        key = reference.object_key or object_keys.segment_key(
            self._namespace, topic, number, reference.base_offset
        )
        index_key = object_keys.index_key_of(key)
        slab = self._pool.acquire(reference.size_bytes)
        read = self._objects.get_range(key, reference.start, reference.size_bytes, slab.view)
        # Both have ended before any error is told: nobody may write into the slab any more.
        data, index_data = await asyncio.gather(read, self._get_index(index_key), return_exceptions=True)
        try:
            if isinstance(data, BaseException):
                raise data
            if isinstance(index_data, BaseException):
                raise index_data
            slab.used_bytes = len(data)
            segment, new_index = await asyncio.to_thread(
                self._checked, partition, reference, key, slab, index_key, index_data
            )
        except CorruptDataError:
            self._pool.release(slab)
            raise
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
        slab: Slab,
        index_key: str,
        index_data: bytes | None,
    ) -> tuple[CachedSegment, bytes | None]:
        """The segment, and its index's new bytes when the stored ones are unusable."""
        if slab.used_bytes != reference.size_bytes:
            raise CorruptDataError(
                key, f"{slab.used_bytes} bytes, the partition record says {reference.size_bytes}"
            )
        segment = parse_segment(key, slab.content())
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
            reference,
            [segment.body],
            HEADER_SIZE,
            index,
            partition_number=partition.number,
            slabs=[slab],
            pool=self._pool,
            is_from_store=True,
        )
        return cached, new_index

    async def close(self) -> None:
        """End the index writes that are under way."""
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
