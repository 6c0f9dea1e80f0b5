"""A partition's record without segments whose objects are gone. Pure."""

from collections.abc import Callable, Container
from dataclasses import replace
from itertools import takewhile

from kafscale.cluster.leadership import next_epoch
from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.journal_keys import is_unsealed_key
from kafscale.formats.partition_record import PartitionRecord
from kafscale.formats.partition_transactions import from_log_start, without_aborted_below
from kafscale.log.producer_state import joined
from kafscale.tools.fsck.record_check import published_references


def without_segments(
    record: PartitionRecord,
    checkpoint: Checkpoint,
    lost: Container[int],
    checkpoint_key: Callable[[int], str],
) -> tuple[PartitionRecord, Checkpoint]:
    """The record of the rest, in the next leader epoch, and the checkpoint that it names.

    `lost`: base offsets of the segments. `checkpoint_key`: a new key, by the offset at which the checkpoint ends. The
    checkpoint takes all of the rest but slices, which stay in the record: it alone says which entries of journals are
    needed. So one that is named says the log's end even where no segment is left (docs/recover.md). The log starts
    later when what is lost lay at its start; its end stays. A leader whose lease has ended may still wait for the
    outcome of its last write: the later epoch says that this record is not its own.
    """
    references = published_references(record, checkpoint)
    kept = tuple(reference for reference in references if reference.base_offset not in lost)
    sealed = tuple(takewhile(lambda one: not is_unsealed_key(one.object_key), kept))
    slices = kept[len(sealed) :]
    end_offset = slices[0].base_offset if slices else record.log_end_offset
    log_start_offset = record.log_start_offset
    if references and references[0].base_offset in lost:
        first_kept = kept[0].base_offset if kept else record.log_end_offset
        log_start_offset = max(log_start_offset, first_kept)
    transactions = from_log_start(record.transactions, log_start_offset)
    newest = max((one.last_offset for one in checkpoint.aborted), default=-1)
    aborted = (*checkpoint.aborted, *(one for one in transactions.aborted if one.last_offset > newest))
    whole = Checkpoint(
        end_offset=end_offset,
        segments=sealed,
        producers=tuple(joined((*checkpoint.producers, *record.producers))),
        aborted=tuple(one for one in aborted if one.last_offset >= log_start_offset),
    )
    return (
        replace(
            next_epoch(record),
            log_start_offset=log_start_offset,
            segments=slices,
            producers=(),
            checkpoint_key=checkpoint_key(end_offset),
            checkpoint_end_offset=end_offset,
            transactions=without_aborted_below(transactions, record.log_end_offset),
        ),
        whole,
    )
