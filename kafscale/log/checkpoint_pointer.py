"""A checkpoint that is stored, and how a partition's record comes to name it. Pure."""

from dataclasses import dataclass, replace

from kafscale.formats.partition_record import PartitionRecord
from kafscale.formats.partition_transactions import without_aborted_below


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPointer:
    """A stored checkpoint that the record does not name yet.

    It covers every segment below `end_offset`, and the transactions that were aborted below `aborted_from`.
    """

    key: str
    end_offset: int
    aborted_from: int = 0


def with_checkpoint(record: PartitionRecord, pointer: CheckpointPointer) -> PartitionRecord:
    """The record that names the checkpoint, and no longer what is in it."""
    return replace(
        record,
        checkpoint_key=pointer.key,
        checkpoint_end_offset=pointer.end_offset,
        segments=tuple(s for s in record.segments if s.base_offset >= pointer.end_offset),
        producers=tuple(p for p in record.producers if p.batches[-1].base_offset >= pointer.end_offset),
        transactions=without_aborted_below(record.transactions, pointer.aborted_from),
    )
