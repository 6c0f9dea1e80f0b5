"""One flush: seal, upload, publish. Every step is conditional, and a timeout is unknown, never failed.

The protocol is that of architecture.md, "Publish: fencing without trust in clocks".
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kafscale.errors import (
    CorruptDataError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreIndeterminateError,
    StoreUnavailableError,
)
from kafscale.metadata import keys
from kafscale.metadata.partition_record import (
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.metadata.store import Compare, KeyValue, MetadataStore, Put
from kafscale.protocol.types import Buffer
from kafscale.storage import object_keys
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.partition import Partition
from kafscale.storage.partition_log import PartitionLog, SealedSegment
from kafscale.storage.segment_buffer import SegmentBuffer

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

FIRST_RETRY_SEC = 0.05
LAST_RETRY_SEC = 2.0
LOG_INTERVAL_SEC = 1.0


class FencedError(Exception):
    """Another leader has written the partition's record: this one may not publish any more.

    `successor` is what it wrote, None where that is not known.
    """

    def __init__(self, message: str, successor: PartitionRecord | None = None) -> None:
        super().__init__(message)
        self.successor = successor


class Publisher:
    """Turns the oldest buffer of a partition into a published segment.

    `index_version` gives the version of the indexes that are written, as of now: see `index_version_at`.
    """

    def __init__(
        self,
        objects: ObjectStore,
        metadata: MetadataStore,
        namespace: str,
        now_ms: Callable[[], int],
        on_published: Callable[[Partition, SealedSegment], None],
        jitter: random.Random,
        index_version: Callable[[], int],
    ) -> None:
        self._objects = objects
        self._metadata = metadata
        self._namespace = namespace
        self._now_ms = now_ms
        self._on_published = on_published
        self._jitter = jitter
        self._index_version = index_version
        self._silent_until_sec = 0.0
        self._unlogged = 0

    async def flush(self, partition: Partition, log: PartitionLog) -> SegmentBuffer:
        """Publish the oldest buffer; it comes back, done with. Tries until it is published or fenced.

        Raises `FencedError`: nothing more will be published, but this buffer may have been, and then its waiters
        have been told so.
        """
        sealed = await self._seal(log)
        while not await self._upload(partition, sealed):
            await self._check_leadership(partition)
            logger.warning(
                "skipped an offset that holds an older leader's leftover",
                extra={"partition": str(partition.id), "offset": sealed.reference.base_offset},
            )
            sealed = log.reseal()
        async with partition.record_lock:
            record = log.begin_publication(sealed)
            try:
                revision = await self.write_record(partition, record)
            except FencedError as fenced:
                if fenced.successor is not None:
                    log.succeeded_by(fenced.successor)
                raise
            partition.publish(record, revision)
            buffer = log.published(sealed, record)
        self._on_published(partition, sealed)
        partition.notify_grown(buffer.size_bytes)
        return buffer

    async def _seal(self, log: PartitionLog) -> SealedSegment:
        index_version = self._index_version()
        if log.start_seal().is_costly_to_seal:
            return await asyncio.to_thread(log.seal, self._now_ms(), index_version)
        return log.seal(self._now_ms(), index_version)

    async def _upload(self, partition: Partition, sealed: SealedSegment) -> bool:
        """Whether the segment lies under its key now; False when something else does."""
        base_offset = sealed.reference.base_offset
        topic, index = partition.id.topic, partition.id.index
        index_key = object_keys.index_key(self._namespace, topic, index, base_offset)
        ours, index_is_new = await asyncio.gather(
            self._put(object_keys.segment_key(self._namespace, topic, index, base_offset), sealed.parts),
            self._put(index_key, [sealed.index]),
        )
        if ours and not index_is_new:
            await self._until_done(lambda: self._objects.put(index_key, [sealed.index]), index_key)
        return ours

    async def _put(self, key: str, parts: Sequence[Buffer]) -> bool:
        """Create the object; True when these very bytes lie under the key, whoever brought them there."""

        async def attempt() -> bool:
            try:
                await self._objects.put_if_absent(key, parts)
            except ObjectExistsError:
                return await self._lies_there(key, parts)
            return True

        return await self._until_done(attempt, key)

    async def _lies_there(self, key: str, parts: Sequence[Buffer]) -> bool:
        try:
            return await self._objects.get(key) == b"".join(parts)
        except ObjectNotFoundError as problem:
            # Taken a moment ago and free now: somebody removed a leftover. The put is to be tried again.
            raise StoreUnavailableError(f"object {key!r} was removed meanwhile") from problem

    async def _check_leadership(self, partition: Partition) -> None:
        key = keys.partition(partition.id.topic, partition.id.index)
        found = await self._until_done(lambda: self._metadata.get(key), key)
        if found is None or found.mod_revision != partition.revision:
            raise _fenced(partition, found)

    async def write_record(self, partition: Partition, record: PartitionRecord) -> int:
        """Replace the partition's record if it is still as this leader wrote it; returns the new revision.

        Raises `FencedError` when it is not. The caller holds `partition.record_lock`.
        """
        key = keys.partition(partition.id.topic, partition.id.index)
        value = encode_partition_record(record)

        async def attempt() -> int:
            try:
                result = await self._metadata.transact([Compare(key, partition.revision)], [Put(key, value)])
            except StoreIndeterminateError:
                return await self._read_back(partition, key, value)
            if result.succeeded:
                return result.revision
            found = result.found[0]
            # An earlier attempt of ours, whose outcome was unknown, may have been applied after all.
            if found is not None and found.value == value:
                return found.mod_revision
            raise _fenced(partition, found)

        return await self._until_done(attempt, key)

    async def _read_back(self, partition: Partition, key: str, value: bytes) -> int:
        found = await self._until_done(lambda: self._metadata.get(key), key)
        if found is not None and found.value == value:
            return found.mod_revision
        if found is not None and found.mod_revision == partition.revision:
            raise StoreUnavailableError(f"the transaction on {key} was not applied")
        raise _fenced(partition, found)

    async def _until_done(self, attempt: Callable[[], Awaitable[Result]], key: str) -> Result:
        delay_sec = FIRST_RETRY_SEC
        while True:
            try:
                return await attempt()
            except (StoreUnavailableError, StoreIndeterminateError) as problem:
                self._log_retry(key, problem)
            await asyncio.sleep(delay_sec * self._jitter.uniform(0.5, 1.0))
            delay_sec = min(delay_sec * 2, LAST_RETRY_SEC)

    def _log_retry(self, key: str, problem: Exception) -> None:
        """While a store is away every partition that is written to meets it: one line a second is enough."""
        now_sec = asyncio.get_running_loop().time()
        if now_sec < self._silent_until_sec:
            self._unlogged += 1
            return
        logger.warning(
            "a store did not answer, trying again",
            extra={"key": key, "problem": str(problem), "unlogged_before": self._unlogged},
        )
        self._silent_until_sec = now_sec + LOG_INTERVAL_SEC
        self._unlogged = 0


def _fenced(partition: Partition, found: KeyValue | None) -> FencedError:
    problem = f"the record of {partition.id} was written by another leader"
    if found is None:
        return FencedError(f"the record of {partition.id} was removed")
    try:
        return FencedError(problem, decode_partition_record(found.key, found.value))
    except CorruptDataError as damage:
        return FencedError(f"{problem}: {damage}")
