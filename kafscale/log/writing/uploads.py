"""Uploads a sealed segment and its index, put-if-absent; an indeterminate outcome is read back.

The protocol is that of architecture.md, "Publish: fencing without trust in clocks".
"""

import asyncio
from collections.abc import Sequence

from kafscale.formats import object_keys
from kafscale.log.partition import PartitionId
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.flush_times import FlushTimes
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.hedging import Hedge
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.types import Buffer
from kafscale.tasks.owner import TaskOwner


class Upload:
    """One sealed segment. `is_there`: True if it is stored under its key, False if another object has the key."""

    __slots__ = ("_index", "is_there", "sealed")

    def __init__(self, sealed: SealedSegment, index: asyncio.Task[None], is_there: bool) -> None:
        self.sealed = sealed
        self.is_there = is_there
        self._index = index

    async def index_is_there(self) -> None:
        """Wait for the index; the segment can be read without it, too. Raises the store's refusal of it."""
        await self._index

    def cancel_index(self) -> None:
        """Cancel the upload of the index. It may be stored all the same; fsck rebuilds a missing one."""
        self._index.cancel()


class Uploader:
    """For every partition of a broker. `hedge`: None where a second request would be of no use."""

    def __init__(
        self, objects: ObjectStore, namespace: str, retries: StoreRetries, hedge: Hedge | None
    ) -> None:
        self._objects = objects
        self._namespace = namespace
        self._retries = retries
        self._conditional_put = ConditionalPut(objects, retries, hedge)
        self._indexes = TaskOwner()

    async def upload(self, partition: PartitionId, sealed: SealedSegment) -> Upload:
        """Retries until the segment's key is taken, by this segment or by another; the index may still be in flight.

        No acknowledgement depends on the index, which can be rebuilt from its segment: waiting for the slower of
        two requests takes half as long again as waiting for one.
        """
        place = (self._namespace, partition.topic, partition.index, sealed.reference.base_offset)
        is_ours: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        index_key = object_keys.index_key(*place)
        index = self._indexes.spawn(
            self._put_index(index_key, sealed.index, is_ours), f"put {index_key}", is_awaited=True
        )
        try:
            is_there = await self._put(object_keys.segment_key(*place), sealed.parts, sealed.buffer.times)
        except BaseException:
            index.cancel()
            await asyncio.gather(index, return_exceptions=True)
            raise
        is_ours.set_result(is_there)
        return Upload(sealed, index, is_there)

    async def close(self) -> None:
        """Cancel the uploads of indexes in flight."""
        await self._indexes.close()

    async def _put_index(self, key: str, content: bytes, is_ours: asyncio.Future[bool]) -> None:
        """Upload the index; if the segment is ours, one that is already there is replaced."""
        if not await self._put(key, [content], FlushTimes()) and await is_ours:
            await self._retries.until_done(lambda: self._objects.put(key, [content]), key)

    async def _put(self, key: str, parts: Sequence[Buffer], times: FlushTimes) -> bool:
        def attempted() -> None:
            times.puts += 1

        return await self._conditional_put.put(key, parts, attempted)
