"""Moves the older part of a partition's record into a checkpoint object, and removes superseded ones."""

import asyncio
import logging
from collections.abc import Callable

from kafscale.errors import StoreError
from kafscale.storage import object_keys
from kafscale.storage.checkpoint import EMPTY_CHECKPOINT, Checkpoint, decode_checkpoint, encode_checkpoint
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.partition import Partition
from kafscale.storage.partition_log import CheckpointPointer

logger = logging.getLogger(__name__)

# Kafka's producer.id.expiration.ms.
PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000
# A reader that holds an old record may still be about to read the checkpoint that it names.
SUPERSEDED_GRACE_MS = 5 * 60 * 1000
# More take longer to encode than the event loop should be held up.
_COSTLY_ENTRIES = 1000


class Checkpointer:
    """Writes checkpoints beside the flushes: the next publication names them (see `PartitionLog`)."""

    def __init__(
        self, objects: ObjectStore, namespace: str, now_ms: Callable[[], int], new_token: Callable[[], str]
    ) -> None:
        self._objects = objects
        self._namespace = namespace
        self._now_ms = now_ms
        self._new_token = new_token
        self._tasks: dict[Partition, asyncio.Task[None]] = {}

    async def load(self, partition: Partition) -> Checkpoint:
        """The checkpoint that the partition's record names. Raises `CorruptDataError`, `StoreError`."""
        key = partition.record.checkpoint_key
        if not key:
            return EMPTY_CHECKPOINT
        return decode_checkpoint(key, await self._objects.get(key))

    def consider(self, partition: Partition) -> None:
        """Start a checkpoint if one is due and none is under way."""
        log = partition.log
        if log is None or not log.checkpoint_due or partition in self._tasks:
            return
        task = asyncio.create_task(self._write(partition), name=f"checkpoint {partition.id}")
        self._tasks[partition] = task
        task.add_done_callback(lambda _: self._tasks.pop(partition))

    async def _write(self, partition: Partition) -> None:
        log, references = partition.log, partition.references
        assert log is not None and references is not None
        record = log.record
        log.producers.expire(self._now_ms() - PRODUCER_EXPIRATION_MS)
        checkpoint = Checkpoint(
            end_offset=record.log_end_offset,
            segments=tuple(references),
            producers=tuple(log.producers.published()),
        )
        key = object_keys.checkpoint_key(
            self._namespace,
            partition.id.topic,
            partition.id.index,
            record.log_end_offset,
            record.leader_epoch,
            self._new_token(),
        )
        try:
            if len(checkpoint.segments) + len(checkpoint.producers) > _COSTLY_ENTRIES:
                encoded = await asyncio.to_thread(encode_checkpoint, checkpoint)
            else:
                encoded = encode_checkpoint(checkpoint)
            await self._objects.put_if_absent(key, [encoded])
            log.waiting_checkpoint = CheckpointPointer(key=key, end_offset=checkpoint.end_offset)
            await self._remove_superseded(partition, record.checkpoint_end_offset)
        except StoreError as problem:
            # The record only grows a little longer: the next flush tries again under a new key.
            logger.warning(
                "could not write a checkpoint",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )

    async def _remove_superseded(self, partition: Partition, end_offset: int) -> None:
        """Remove checkpoints that end below the one that the record names, if they are old.

        Only those: a leader that was replaced and does not know it names an older one than its successors,
        never a newer one, so it removes nothing that they need.
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
        if superseded:
            await self._objects.delete(superseded)

    async def close(self) -> None:
        """Give up what is under way: no record names it yet."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
