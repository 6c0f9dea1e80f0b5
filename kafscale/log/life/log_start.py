"""Raises a partition's log start offset: the record drops the segments below it, their objects are deleted later."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from kafscale.formats.journal_keys import is_unsealed_key
from kafscale.formats.partition_record import PartitionRecord, SegmentReference
from kafscale.formats.partition_transactions import from_log_start
from kafscale.journal.partition_state import unsealed
from kafscale.log.checkpoint_pointer import CheckpointPointer, with_checkpoint
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life.removals import Removals
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.references import SegmentReferences
from kafscale.log.writing.record_writer import FencedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The new log start offset, and the segments that the record no longer names."""

    log_start_offset: int
    dropped: Sequence[SegmentReference]


class LogStart:
    """Raises the log start offsets of partitions that this broker leads.

    Before the last segment of a log is removed from its record, the record names a checkpoint with the log end
    offset: only this shows a rebuild from the bucket where the log ended (docs/recover.md).
    """

    def __init__(
        self,
        logs: LogManager,
        checkpointer: Checkpointer,
        removals: Removals,
        seal: Callable[[Partition], Awaitable[None]],
    ) -> None:
        """`seal` makes segments of the partition's slices. Raises as `move_up`."""
        self._seal = seal
        self._logs = logs
        self._checkpointer = checkpointer
        self._removals = removals

    async def move_up(self, partition: Partition, offset: int) -> Moved:
        """Make `offset`, at most the log end offset, the log start offset unless that is higher.

        Raises `FencedError` if this broker does not lead the partition, `StoreError`, `CorruptDataError`.
        """
        return await self._move(partition, offset, is_exact=True)

    async def drop(self, partition: Partition, reference: SegmentReference) -> Moved:
        """Let the log start after the segment: at the next one, or at its end. Raises as `move_up` does."""
        return await self._move(partition, reference.last_offset + 1, is_exact=False)

    async def _move(self, partition: Partition, offset: int, *, is_exact: bool) -> Moved:
        await self._logs.open(partition)
        moved = await self._try(partition, offset, None, is_exact=is_exact)
        if moved is None:
            async with self._checkpointer.alone(partition):
                while moved is None:
                    log, references = _led(partition)
                    if unsealed(log.record.segments):
                        # A checkpoint names no slices, and must name all that is there.
                        await self._seal(partition)
                        continue
                    pointer = await self._checkpointer.write(partition, log, references)
                    moved = await self._try(partition, offset, pointer, is_exact=is_exact)
        if any(is_unsealed_key(reference.object_key) for reference in moved.dropped):
            # Before their entries are collected, each at its own time: see `_note`.
            await self._note(partition)
        self._removals.remove_later(partition, moved.dropped, self._note)
        return moved

    async def _note(self, partition: Partition) -> None:
        """Store a checkpoint without the segments whose objects are about to be deleted.

        A deletion may stop half way. A rebuild from the bucket would restore the remaining segments, with holes
        between them, unless the newest checkpoint says where the log starts. Raises `FencedError`, `StoreError`.
        """
        async with self._checkpointer.alone(partition):
            log, references = _led(partition)
            log.waiting_checkpoint = await self._checkpointer.write(partition, log, references)

    async def _try(
        self, partition: Partition, offset: int, pointer: CheckpointPointer | None, *, is_exact: bool
    ) -> Moved | None:
        """Returns None, without a change, if no segment would be left and no checkpoint says where the log ends."""
        async with partition.record_lock:
            log, references = _led(partition)
            record = partition.record
            first_kept = next(references.from_offset(offset), None)
            if not is_exact:
                next_offset = record.log_end_offset if first_kept is None else first_kept.base_offset
                offset = max(offset, next_offset)
            if offset <= record.log_start_offset:
                return Moved(log_start_offset=record.log_start_offset, dropped=())
            if first_kept is None and not _is_end_stored(record):
                if pointer is None or pointer.end_offset != record.log_end_offset:
                    return None
            else:
                pointer = None
            await self._logs.records.write(partition, log, lambda state: _starting_at(state, offset, pointer))
            return Moved(log_start_offset=offset, dropped=references.drop_below(offset))


def _starting_at(record: PartitionRecord, offset: int, pointer: CheckpointPointer | None) -> PartitionRecord:
    if pointer is not None:
        record = with_checkpoint(record, pointer)
    kept = tuple(segment for segment in record.segments if segment.last_offset >= offset)
    return replace(
        record,
        log_start_offset=offset,
        segments=kept,
        transactions=from_log_start(record.transactions, offset),
    )


def _is_end_stored(record: PartitionRecord) -> bool:
    return bool(record.checkpoint_key) and record.checkpoint_end_offset == record.log_end_offset


def _led(partition: Partition) -> tuple[PartitionLog, SegmentReferences]:
    log, references = partition.log, partition.references
    if log is None or references is None or not partition.is_led:
        raise FencedError(f"this broker does not lead {partition.id}")
    return log, references
