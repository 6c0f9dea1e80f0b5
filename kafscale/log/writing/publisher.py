"""One flush: seal, upload, publish. Every step is conditional, and a timeout is unknown, never failed.

The protocol is that of architecture.md, "Publish: fencing without trust in clocks".
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from kafscale.errors import (
    CorruptDataError,
    StoreIndeterminateError,
    StoreUnavailableError,
)
from kafscale.formats.partition_record import (
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing.publication_batch import Publication
from kafscale.log.writing.shared_publications import SharedPublications
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.log.writing.uploads import Upload, Uploader
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataStore
from kafscale.objects.hedging import Hedge
from kafscale.objects.object_store import ObjectStore

logger = logging.getLogger(__name__)

READ_BACKS_AT_ONCE = 8


class FencedError(Exception):
    """Another leader has written the partition's record: this one may not publish any more.

    `successor` is what it wrote, None where that is not known.
    """

    def __init__(self, message: str, successor: PartitionRecord | None = None) -> None:
        super().__init__(message)
        self.successor = successor


class KeyTakenError(Exception):
    """An older leader's upload has a segment's key, and the segment cannot move: the leader needs a new epoch."""


class Publisher:
    """Turns buffers of a partition into published segments, the oldest first.

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
        hedge: Hedge | None = None,
    ) -> None:
        self._retries = StoreRetries(jitter)
        self._uploader = Uploader(objects, namespace, self._retries, hedge)
        self._metadata = metadata
        self._now_ms = now_ms
        self._on_published = on_published
        self._publications = SharedPublications(metadata)
        # A transaction without an answer leaves all of its publications in doubt, and they read back at once.
        self._reading_back = asyncio.Semaphore(READ_BACKS_AT_ONCE)
        self._index_version = index_version

    async def upload(self, partition: Partition, log: PartitionLog) -> Upload:
        """Seal the oldest open buffer and upload it; the one before it may still be in flight.

        See `PartitionLog.may_seal`. The caller publishes the upload, or cancels its index.
        """
        return await self._uploader.upload(partition.id, await self._seal(log))

    async def publish(self, partition: Partition, log: PartitionLog, upload: Upload) -> Upload:
        """Publish the oldest upload and return it, or the one that replaced it. Retries until published or fenced.

        Raises `FencedError`: nothing more will be published, but this buffer may have been, and then its waiters
        have been notified. Raises `KeyTakenError` if its key is taken and it cannot move.
        """
        while not upload.is_there:
            upload.cancel_index()
            await self._check_leadership(partition)
            base_offset = upload.sealed.reference.base_offset
            if not log.may_reseal:
                raise KeyTakenError(f"{partition.id} meets an older leader's upload at offset {base_offset}")
            logger.warning(
                "skipped an offset that an older leader's upload has",
                extra={"partition": str(partition.id), "offset": base_offset},
            )
            upload = await self._uploader.upload(partition.id, log.reseal())
        sealed = upload.sealed
        async with partition.record_lock:
            if not log.may_publish:
                # Another flush of it has failed, and the waiters were answered that nothing is stored.
                raise FencedError(f"the log of {partition.id} was closed meanwhile")
            record = log.begin_publication(sealed)
            try:
                revision = await self.write_record(partition, record)
            except FencedError as fenced:
                if fenced.successor is not None and log.sealed is sealed:
                    log.succeeded_by(fenced.successor)
                raise
            partition.publish(record, revision)
            # Unless the log was closed meanwhile: its waiters were answered that the outcome is unknown.
            if log.sealed is sealed:
                sealed.buffer.times.published_sec = time.perf_counter()
                log.published(sealed, record)
        self._on_published(partition, sealed)
        partition.notify_grown(sealed.buffer.size_bytes)
        return upload

    async def close(self) -> None:
        """Cancel the uploads of indexes and the publications in flight; no request waits for them any more."""
        await self._uploader.close()
        await self._publications.close()

    async def _seal(self, log: PartitionLog) -> SealedSegment:
        index_version = self._index_version()
        buffer, base_offset = log.start_seal()
        if buffer.is_costly_to_seal:
            return await asyncio.to_thread(log.seal, buffer, base_offset, self._now_ms(), index_version)
        return log.seal(buffer, base_offset, self._now_ms(), index_version)

    async def _check_leadership(self, partition: Partition) -> None:
        key = keys.partition(partition.id.topic, partition.id.index)
        found = await self._retries.until_done(lambda: self._metadata.get(key), key)
        if found is None or found.mod_revision != partition.revision:
            raise _fenced(partition, found)

    async def write_record(self, partition: Partition, record: PartitionRecord) -> int:
        """Replace the partition's record if it is still as this leader wrote it; returns the new revision.

        Raises `FencedError` when it is not. The caller holds `partition.record_lock`.
        """
        key = keys.partition(partition.id.topic, partition.id.index)
        value = encode_partition_record(record)

        async def attempt() -> int:
            publication = Publication(key=key, value=value, mod_revision=partition.revision)
            try:
                result = await self._publications.publish(publication)
            except StoreIndeterminateError:
                return await self._read_back(partition, key, value)
            if result.succeeded:
                return result.revision
            found = result.found[0]
            # An earlier attempt of ours, whose outcome was unknown, may have been applied after all.
            if found is not None and found.value == value:
                return found.mod_revision
            raise _fenced(partition, found)

        return await self._retries.until_done(attempt, key)

    async def _read_back(self, partition: Partition, key: str, value: bytes) -> int:
        found = await self._retries.until_done(lambda: self._get_in_turn(key), key)
        if found is not None and found.value == value:
            return found.mod_revision
        if found is not None and found.mod_revision == partition.revision:
            raise StoreUnavailableError(f"the transaction on {key} was not applied")
        raise _fenced(partition, found)

    async def _get_in_turn(self, key: str) -> KeyValue | None:
        async with self._reading_back:
            return await self._metadata.get(key)


def _fenced(partition: Partition, found: KeyValue | None) -> FencedError:
    problem = f"the record of {partition.id} was written by another leader"
    if found is None:
        return FencedError(f"the record of {partition.id} was removed")
    try:
        return FencedError(problem, decode_partition_record(found.key, found.value))
    except CorruptDataError as damage:
        return FencedError(f"{problem}: {damage}")
