"""The checkpoint object: what the partition record no longer holds itself. Format: docs/format/checkpoint.md."""

from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.partition_record import (
    ProducerRecord,
    SegmentReference,
    decode_contents,
    encode_contents,
)
from kafscale.formats.partition_transactions import (
    AbortedTransaction,
    PartitionTransactions,
    decode_transactions,
    encode_transactions,
)

MAGIC = b"KCKP"
VERSION = 1
TRANSACTIONS_VERSION = 2
"""Of a checkpoint with aborted transactions."""

_HEADER = Struct(">4sHHIqII")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Every reference below `end_offset`, ascending, and the producers as they were there.

    `aborted`: all transactions that were aborted when it was written, also above `end_offset`, ascending by last
    offset.
    """

    end_offset: int
    segments: tuple[SegmentReference, ...] = ()
    producers: tuple[ProducerRecord, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()


EMPTY_CHECKPOINT = Checkpoint(end_offset=0)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The object's bytes."""
    payload = encode_contents(checkpoint.segments, checkpoint.producers)
    version = VERSION
    if checkpoint.aborted:
        version = TRANSACTIONS_VERSION
        payload += encode_transactions(PartitionTransactions(aborted=checkpoint.aborted))
    header = _HEADER.pack(
        MAGIC,
        version,
        0,
        crc32c(payload),
        checkpoint.end_offset,
        len(checkpoint.segments),
        len(checkpoint.producers),
    )
    return header + payload


def decode_checkpoint(name: str, data: bytes) -> Checkpoint:
    """The checkpoint. `name` says which object in errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise CorruptDataError(name, "not a checkpoint: magic or length is wrong")
    _, version, _, crc, end_offset, segment_count, producer_count = _HEADER.unpack_from(data)
    if version not in (VERSION, TRANSACTIONS_VERSION):
        raise UnknownFormatVersionError(name, version, f"{VERSION}, {TRANSACTIONS_VERSION}")
    if crc32c(memoryview(data)[_HEADER.size :]) != crc:
        raise CorruptDataError(name, "the checkpoint's CRC does not match its bytes")
    segments, producers, position = decode_contents(name, data, _HEADER.size, segment_count, producer_count)
    transactions = PartitionTransactions()
    if version == TRANSACTIONS_VERSION:
        transactions, position = decode_transactions(name, data, position)
    if position != len(data):
        raise CorruptDataError(name, f"{len(data) - position} bytes after the end of the checkpoint")
    if transactions.open or transactions.aborted_from:
        raise CorruptDataError(name, f"{len(transactions.open)} open transactions: a record has those")
    return Checkpoint(
        end_offset=end_offset, segments=segments, producers=producers, aborted=transactions.aborted
    )
