"""The batches of a read for a share partition: their offsets, and if they have records for a member. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafscale.formats.partition_transactions import AbortedTransaction
from kafscale.memory.pieces import Pieces
from kafscale.protocol.record_batch import CONTROL_FLAG, LOG_OVERHEAD, TRANSACTIONAL_FLAG
from kafscale.share.partition.acquiring import LogBatch

# Base offset, length, attributes, last offset delta, producer id, record count.
_HEADER: Final = Struct(">qi9xhi16xq6xi")


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch, and where its bytes end in what was read."""

    batch: LogBatch
    end: int


def read_batches(
    views: Iterable[memoryview], aborted: Sequence[AbortedTransaction] | None = None
) -> Iterator[ReadBatch]:
    """Walk over whole batches that were checked when they were written.

    `aborted`: for a group that reads committed records only. Markers have no records for a member, nor have batches
    that compaction has emptied.
    """
    pieces = Pieces(views)
    position = 0
    while position < pieces.end:
        base, length, attributes, delta, producer_id, count = pieces.unpack(_HEADER, position)
        position += LOG_OVERHEAD + length
        is_aborted = (
            aborted is not None
            and attributes & TRANSACTIONAL_FLAG
            and any(
                one.producer_id == producer_id and one.first_offset <= base <= one.last_offset
                for one in aborted
            )
        )
        has_records = count > 0 and not attributes & CONTROL_FLAG and not is_aborted
        yield ReadBatch(LogBatch(base, base + delta, has_records), position)


def bytes_through(batches: Iterable[ReadBatch], last_offset: int) -> int:
    """How many of the bytes read are needed for the records up to this one."""
    size_bytes = 0
    for one in batches:
        if one.batch.first > last_offset:
            break
        size_bytes = one.end
    return size_bytes
