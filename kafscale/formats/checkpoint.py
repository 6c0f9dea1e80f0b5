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

MAGIC = b"KCKP"
VERSION = 1

_HEADER = Struct(">4sHHIqII")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Every reference below `end_offset`, ascending, and the producers as they were there."""

    end_offset: int
    segments: tuple[SegmentReference, ...] = ()
    producers: tuple[ProducerRecord, ...] = ()


EMPTY_CHECKPOINT = Checkpoint(end_offset=0)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The object's bytes."""
    payload = encode_contents(checkpoint.segments, checkpoint.producers)
    header = _HEADER.pack(
        MAGIC,
        VERSION,
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
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    if crc32c(memoryview(data)[_HEADER.size :]) != crc:
        raise CorruptDataError(name, "the checkpoint's CRC does not match its bytes")
    segments, producers, position = decode_contents(name, data, _HEADER.size, segment_count, producer_count)
    if position != len(data):
        raise CorruptDataError(name, f"{len(data) - position} bytes after the end of the checkpoint")
    return Checkpoint(end_offset=end_offset, segments=segments, producers=producers)
