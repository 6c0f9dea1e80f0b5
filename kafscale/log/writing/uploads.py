"""Brings a sealed segment and its index to the object store: conditional, in doubt looked at again.

The protocol is that of architecture.md, "Publish: fencing without trust in clocks".
"""

import asyncio
from collections.abc import Sequence

from kafscale.errors import ObjectExistsError, ObjectNotFoundError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.log.partition import PartitionId
from kafscale.log.partition_log import SealedSegment
from kafscale.log.writing.flush_times import FlushTimes
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.hedging import Hedge, hedged
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.types import Buffer
from kafscale.tasks.owner import TaskOwner

HEDGED_BYTES = 256 * 1024
"""Up to here a second request may be sent beside a slow one: it is lateness that makes it slow, not its size."""


class Upload:
    """One sealed segment on its way. `is_there`: whether the segment lies under its key; something else may."""

    __slots__ = ("_index", "is_there", "sealed")

    def __init__(self, sealed: SealedSegment, index: asyncio.Task[None], is_there: bool) -> None:
        self.sealed = sealed
        self.is_there = is_there
        self._index = index

    async def index_is_there(self) -> None:
        """Wait for the index, without which the segment can be read, too. Raises what the store refuses it with."""
        await self._index

    def give_up(self) -> None:
        """Nobody waits for the index any more. It may arrive all the same, or it is missing: fsck makes it anew."""
        self._index.cancel()


class Uploader:
    """For every partition of a broker. `hedge`: None where a second request would be of no use."""

    def __init__(
        self, objects: ObjectStore, namespace: str, retries: StoreRetries, hedge: Hedge | None
    ) -> None:
        self._objects = objects
        self._namespace = namespace
        self._retries = retries
        self._hedge = hedge
        self._indexes = TaskOwner()

    async def upload(self, partition: PartitionId, sealed: SealedSegment) -> Upload:
        """Tries until the segment lies under its key or something else does; the index may still be on its way.

        Nobody is acknowledged by an index: it can be made anew from its segment, and to wait for the slower of
        two requests takes half as long again as to wait for one.
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
        """End the indexes that are on their way, whether there or not; nobody waits for them any more."""
        await self._indexes.close()

    async def _put_index(self, key: str, content: bytes, is_ours: asyncio.Future[bool]) -> None:
        """Another's index under the key of a segment of ours is replaced."""
        if not await self._put(key, [content], FlushTimes()) and await is_ours:
            await self._retries.until_done(lambda: self._objects.put(key, [content]), key)

    async def _put(self, key: str, parts: Sequence[Buffer], times: FlushTimes) -> bool:
        """Create the object; True when these very bytes lie under the key, whoever brought them there."""

        async def attempt() -> bool:
            times.puts += 1
            try:
                await self._objects.put_if_absent(key, parts)
            except ObjectExistsError:
                return await self._lies_there(key, parts)
            return True

        hedge = self._hedge
        if hedge is None or sum(memoryview(part).nbytes for part in parts) > HEDGED_BYTES:
            return await self._retries.until_done(attempt, key)
        return await self._retries.until_done(lambda: hedged(attempt, hedge), key)

    async def _lies_there(self, key: str, parts: Sequence[Buffer]) -> bool:
        try:
            return await self._objects.get(key) == b"".join(parts)
        except ObjectNotFoundError as problem:
            # Taken a moment ago and free now: somebody removed a leftover. The put is to be tried again.
            raise StoreUnavailableError(f"object {key!r} was removed meanwhile") from problem
