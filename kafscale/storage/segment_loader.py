"""Reads a published segment from the object store, and believes nothing of it that it has not checked."""

import asyncio
import logging
from collections.abc import Sequence

from kafscale.errors import CorruptDataError, ObjectNotFoundError, StoreError
from kafscale.metadata.partition_record import SegmentReference
from kafscale.ops.metrics import Metrics
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.protocol.record_batch import MAGIC, read_header
from kafscale.storage import object_keys
from kafscale.storage.cached_segment import CachedSegment
from kafscale.storage.index import SparseIndex, parse_index, rebuild_index
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.partition import Partition
from kafscale.storage.pieces import Pieces
from kafscale.storage.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    body_crc,
    parse_footer,
    parse_header,
    parse_segment,
)
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
        key = object_keys.key_of_reference(self._namespace, topic, number, reference)
        index_key = object_keys.index_key_of(key)
        slabs = self._pool.acquire_together(reference.size_bytes)
        read = self._objects.read_into(
            key, reference.start, reference.size_bytes, [slab.view for slab in slabs]
        )
        # Both have ended before any error is told: nobody may write into the slabs any more.
        count, index_data = await asyncio.gather(read, self._get_index(index_key), return_exceptions=True)
        try:
            if isinstance(count, BaseException):
                raise count
            if isinstance(index_data, BaseException):
                raise index_data
            _check_length(key, count, reference)
            checked = _Checked(key, reference, Pieces(slab.content() for slab in slabs))
            index, new_index = await asyncio.to_thread(checked.index, index_key, index_data)
        except BaseException:
            self._release(slabs)
            raise
        if new_index is not None:
            self._metrics.index_rebuilds += 1
            task = asyncio.create_task(self._put_index(index_key, new_index), name=f"rewrite {index_key}")
            self._index_writes.add(task)
            task.add_done_callback(self._index_writes.discard)
        return CachedSegment(
            reference,
            checked.body(),
            HEADER_SIZE,
            index,
            partition_number=partition.number,
            slabs=slabs,
            pool=self._pool,
            is_from_store=True,
        )

    def _release(self, slabs: Sequence[Slab]) -> None:
        for slab in slabs:
            self._pool.release(slab)

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

    async def close(self) -> None:
        """End the index writes that are under way."""
        tasks = list(self._index_writes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _check_length(key: str, count: int, reference: SegmentReference) -> None:
    if count != reference.size_bytes:
        raise CorruptDataError(key, f"{count} bytes, the partition record says {reference.size_bytes}")


class _Checked:
    """A segment's file as it was read, held against the reference. Every method raises `CorruptDataError`."""

    def __init__(self, key: str, reference: SegmentReference, file: Pieces) -> None:
        self._key = key
        self._file = file
        self._body_end = file.end - FOOTER_SIZE
        header = parse_header(key, file.contiguous(0, HEADER_SIZE))
        self._footer = parse_footer(key, file.contiguous(self._body_end, file.end))
        self._base_offset, self._last_offset = header.base_offset, self._footer.last_offset
        if (self._base_offset, self._last_offset) != (reference.base_offset, reference.last_offset):
            raise CorruptDataError(
                key,
                f"holds offsets {self._base_offset} to {self._last_offset}, the partition record says "
                f"{reference.base_offset} to {reference.last_offset}",
            )

    def body(self) -> list[memoryview]:
        """The batches."""
        return self._file.slices(HEADER_SIZE, self._body_end)

    def index(self, key: str, data: bytes | None) -> tuple[SparseIndex, bytes | None]:
        """The index, and its new bytes when the stored ones are unusable; the body's CRC is checked first."""
        if body_crc(self.body()) != self._footer.body_crc:
            raise CorruptDataError(self._key, "the CRC of the body does not match the footer's")
        try:
            return self._stored_index(key, data), None
        except CorruptDataError as problem:
            logger.warning("an index is unusable, making it anew", extra={"problem": str(problem)})
        new_index = rebuild_index(parse_segment(self._key, self._file.contiguous(0, self._file.end)))
        return parse_index(key, new_index, self._base_offset), new_index

    def _stored_index(self, key: str, data: bytes | None) -> SparseIndex:
        if data is None:
            raise CorruptDataError(key, "there is no such object")
        index = parse_index(key, data, self._base_offset)
        index.check(last_offset=self._last_offset, body_end=self._body_end)
        for offset, position in zip(index.offsets, index.positions, strict=True):
            batch = read_header(self._file.contiguous(position, position + BATCH_HEADER_SIZE), 0)
            if (batch.base_offset, batch.magic) != (offset, MAGIC):
                raise CorruptDataError(key, f"there is no batch with offset {offset} at position {position}")
        return index
