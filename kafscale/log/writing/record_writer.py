"""Writes the records of the partitions that this broker leads, each under a compare of what it wrote last.

Never on an acknowledgement's way: the journal has what the record lacks (docs/format/journal.md).
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.partition_record import JournalPosition, PartitionRecord, encode_partition_record
from kafscale.log.checkpoint_pointer import CheckpointPointer, with_checkpoint
from kafscale.log.partition import Partition
from kafscale.log.partition_log import Change, PartitionLog
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.shared_writes import TRANSACTIONS_AT_ONCE, SharedWrites
from kafscale.metadata.store import Compare, KeyValue, MetadataStore, Put
from kafscale.metadata.write_batch import Write

READ_BACKS_AT_ONCE = 8

OnStored = Callable[[Partition, PartitionRecord], None]


class FencedError(Exception):
    """Another leader has written the partition's record: this one may not write it any more."""


def unchanged(record: PartitionRecord) -> PartitionRecord:
    """The change that stores what is published, and nothing else."""
    return record


class RecordWriter:
    """For every partition of a broker."""

    def __init__(
        self, metadata: MetadataStore, jitter: random.Random, on_stored: OnStored | None = None
    ) -> None:
        """`on_stored` is called with each partition whose state was stored, and the state."""
        self._metadata = metadata
        self._on_stored = on_stored
        self._retries = StoreRetries(jitter)
        self._writes = SharedWrites(metadata, TRANSACTIONS_AT_ONCE, "partition records")
        # A transaction without an answer leaves all of its records in doubt, and they are read back at once.
        self._reading_back = asyncio.Semaphore(READ_BACKS_AT_ONCE)

    async def store(self, partition: Partition) -> None:
        """Store what is published of the partition. Raises `FencedError`."""
        async with partition.record_lock:
            await self.write(partition, open_log(partition), unchanged)

    async def release(self, partition: Partition) -> None:
        """Store what is published, and that no journal has more: another broker may lead from there.

        Nothing of the partition may be in flight, and nothing more be accepted. Raises `FencedError`.
        """
        async with partition.record_lock:
            _check(partition)
            record = replace(_state(partition), journal=None)
            revision = await self._put(partition, record)
            partition.stored(_state(partition), revision, partition.applied_sequence)

    async def write(self, partition: Partition, log: PartitionLog, change: Change) -> PartitionRecord:
        """Store the partition's state with `change`, which becomes part of it; returns the state then.

        It names the checkpoint that waits for that. The caller has `partition.record_lock`. Raises `FencedError`.
        """
        _check(partition)
        change = _naming(log.waiting_checkpoint, change)
        record = replace(change(log.record), journal=_position(partition))
        revision = await self._put(partition, record)
        state = log.adopt(change, record.log_end_offset)
        partition.stored(state, revision, -1 if record.journal is None else record.journal.sequence)
        if self._on_stored is not None:
            self._on_stored(partition, state)
        return state

    async def close(self) -> None:
        """Cancel the writes in flight."""
        await self._writes.close()

    async def _put(self, partition: Partition, record: PartitionRecord) -> int:
        key = keys.partition(partition.id.topic, partition.id.index)
        value = encode_partition_record(record)

        async def attempt() -> int:
            write = Write((Compare(key, partition.revision),), (Put(key, value),))
            try:
                result = await self._writes.write(write)
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


def open_log(partition: Partition) -> PartitionLog:
    """The partition's log. Raises `FencedError` if it is closed."""
    if partition.log is None:
        raise FencedError(f"the log of {partition.id} was closed meanwhile")
    return partition.log


def _naming(pointer: CheckpointPointer | None, change: Change) -> Change:
    """The change of a record that names the checkpoint; one that names a newer one itself goes on doing so."""
    if pointer is None:
        return change
    return lambda record: change(with_checkpoint(record, pointer))


def _check(partition: Partition) -> None:
    if not partition.leadership.rights.publishes:
        raise FencedError(f"this broker does not lead {partition.id} any more")


def _state(partition: Partition) -> PartitionRecord:
    return partition.record if partition.log is None else partition.log.record


def _position(partition: Partition) -> JournalPosition | None:
    journal = partition.journal
    if journal is None:
        return None
    sequence = max(journal.applied_through, partition.applied_sequence)
    return JournalPosition(journal_id=journal.journal_id, sequence=sequence, topic_id=partition.topic_id)


def _fenced(partition: Partition, found: KeyValue | None) -> FencedError:
    if found is None:
        return FencedError(f"the record of {partition.id} was removed")
    return FencedError(f"the record of {partition.id} was written by another leader")
