"""Moves the older part of a partition's record into a checkpoint object, and removes superseded ones."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable
from contextlib import asynccontextmanager

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT, Checkpoint, decode_checkpoint, encode_checkpoint
from kafscale.formats.partition_record import SegmentReference
from kafscale.journal.partition_state import unsealed
from kafscale.log.checkpoint_pointer import CheckpointPointer
from kafscale.log.leader_check import is_leader_still
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_state import MOST_PRODUCERS
from kafscale.metadata.store import MetadataStore
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# Kafka's producer.id.expiration.ms.
PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000
# A reader with an old record may still be about to read the checkpoint that it names.
SUPERSEDED_GRACE_MS = 5 * 60 * 1000
# More would delay the event loop for too long while they are encoded.
_COSTLY_ENTRIES = 1000
# Of a checkpoint without which nothing more is published.
_FIRST_RETRY_SEC = 0.25
_LAST_RETRY_SEC = 5.0


class Checkpointer:
    """Writes checkpoints beside the flushes: the next write of the record names them (see `PartitionLog`)."""

    def __init__(
        self,
        objects: ObjectStore,
        metadata: MetadataStore,
        namespace: str,
        now_ms: Callable[[], int],
        new_token: Callable[[], str],
        failures: Counter[str] | None = None,
    ) -> None:
        self._objects = objects
        self._metadata = metadata
        self._namespace = namespace
        self._now_ms = now_ms
        self._new_token = new_token
        self._tasks = TaskOwner()
        self._held_up: set[Partition] = set()
        self._failures = ItemFailures(BackgroundWork.CHECKPOINTS, failures)

    async def load(self, partition: Partition) -> Checkpoint:
        """The checkpoint that the partition's record names. Raises `CorruptDataError`, `StoreError`."""
        key = partition.record.checkpoint_key
        if not key:
            return EMPTY_CHECKPOINT
        return decode_checkpoint(key, await self._objects.get(key))

    def consider(self, partition: Partition) -> None:
        """Start a checkpoint if one is due and none is in progress."""
        log = partition.log
        if log is None or not log.checkpoint_due or partition in self._tasks:
            return
        self._tasks.spawn(self._write(partition), f"checkpoint {partition.id}", key=partition)

    @property
    def held_up_count(self) -> int:
        """The number of partitions that take no records until a checkpoint of them can be stored. For any thread."""
        return len(self._held_up)

    async def make_room(self, partition: Partition, log: PartitionLog) -> None:
        """Return when the record has room for another segment, or the log is closed.

        Until then nothing more of the partition is published: its record would grow beyond what the metadata store
        takes in one request. What a checkpoint takes over need not stand in the record, so one is written, with
        retries while the object store takes none.
        """
        delay_sec = _FIRST_RETRY_SEC
        try:
            while log.may_publish and not log.has_room:
                if await self._renewed(partition, log):
                    continue
                log.is_held_up = True
                self._held_up.add(partition)
                await asyncio.sleep(delay_sec)
                delay_sec = min(2 * delay_sec, _LAST_RETRY_SEC)
        finally:
            log.is_held_up = False
            self._held_up.discard(partition)

    async def _renewed(self, partition: Partition, log: PartitionLog) -> bool:
        """True if a checkpoint of the log as it is now waits to be named."""
        try:
            async with self.alone(partition):
                references = partition.references
                if references is None:
                    return False
                if log.may_publish and not log.has_room:
                    log.waiting_checkpoint = await self.write(partition, log, references)
        except Exception as problem:  # noqa: BLE001 - reported
            self._failures.report(partition.id, problem)
            return False
        return True

    @asynccontextmanager
    async def alone(self, partition: Partition) -> AsyncIterator[None]:
        """Exclude other checkpoints of the partition: one that covers less must not be named later."""
        if partition.checkpoint_lock is None:
            partition.checkpoint_lock = asyncio.Lock()
        async with partition.checkpoint_lock:
            yield

    async def write(
        self,
        partition: Partition,
        log: PartitionLog,
        references: Iterable[SegmentReference],
        gone_transactions: Container[int] = (),
    ) -> CheckpointPointer:
        """Write a checkpoint of the log as it is now, with these references. The caller is `alone`.

        `gone_transactions`: aborted ones that it is not to name, by the offsets of their markers.

        It counts once a record names it. Raises `StoreError`.
        """
        record = log.record
        log.producers.expire(self._now_ms() - PRODUCER_EXPIRATION_MS)
        if forgotten := log.producers.take_forgotten():
            logger.warning(
                "forgot producers early: too many write to the partition",
                extra={"partition": str(partition.id), "count": forgotten, "most": MOST_PRODUCERS},
            )
        assert partition.aborted is not None, "they are loaded with the references"
        # Slices stay in the record: which entries of journals are needed is seen from records alone.
        named = tuple(references)
        slices = unsealed(named)
        checkpoint = Checkpoint(
            end_offset=slices[0].base_offset if slices else record.log_end_offset,
            segments=named[: len(named) - len(slices)],
            producers=tuple(log.producers.published()),
            aborted=tuple(one for one in partition.aborted if one.last_offset not in gone_transactions),
        )
        aborted_from = record.log_end_offset
        key = object_keys.checkpoint_key(
            self._namespace,
            partition.id.topic,
            partition.id.index,
            checkpoint.end_offset,
            record.leader_epoch,
            self._new_token(),
        )
        if len(checkpoint.segments) + len(checkpoint.producers) + len(checkpoint.aborted) > _COSTLY_ENTRIES:
            encoded = await asyncio.to_thread(encode_checkpoint, checkpoint)
        else:
            encoded = encode_checkpoint(checkpoint)
        await self._objects.put_if_absent(key, [encoded])
        return CheckpointPointer(key=key, end_offset=checkpoint.end_offset, aborted_from=aborted_from)

    async def _write(self, partition: Partition) -> None:
        try:
            async with self.alone(partition):
                log, references = partition.log, partition.references
                if log is None or references is None or not log.checkpoint_due:
                    return
                named_end_offset = log.record.checkpoint_end_offset
                log.waiting_checkpoint = await self.write(partition, log, references)
            await self.remove_superseded(partition, named_end_offset)
        except (StoreError, CorruptDataError) as problem:
            # The record only grows a little longer: the next flush tries again under a new key.
            logger.warning(
                "could not write a checkpoint",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
        except Exception as problem:  # noqa: BLE001 - reported
            self._failures.report(partition.id, problem)

    async def remove_superseded(self, partition: Partition, end_offset: int) -> None:
        """Delete old checkpoints that end below `end_offset`, which is that of one that the record names.

        Only those: a leader that was replaced and does not know it names an older one than its successors,
        never a newer one, so it deletes nothing that they need. Nor does it delete those of a topic that has the
        name now and begins at offset 0 again: this broker's leadership is checked after the listing.
        """
        prefix = object_keys.checkpoints_partition_prefix(
            self._namespace, partition.id.topic, partition.id.index
        )
        before_ms = self._now_ms() - SUPERSEDED_GRACE_MS
        superseded = [
            info.key
            async for info in self._objects.list(prefix)
            if info.modified_ms < before_ms
            and (parsed := object_keys.parse_checkpoint_key(info.key)) is not None
            and parsed.log_end_offset < end_offset
        ]
        if superseded and await is_leader_still(self._metadata, partition):
            await self._objects.delete(superseded)

    async def close(self) -> None:
        """Cancel the checkpoints in progress: no record names them yet."""
        await self._tasks.close()
