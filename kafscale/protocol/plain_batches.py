"""Stored batches as a client without snappy, lz4 and zstd reads them: decompressed, and otherwise as they were.

gzip is left: no client is without it. Length, attributes and CRC of a batch change; offsets, timestamps and the
producer's fields do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import Codec, DecompressedTooLargeError, decompress
from kafscale.protocol.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MIN_BATCH_LENGTH,
    BatchHeader,
    walk,
    write_crc,
    write_header,
)
from kafscale.protocol.types import Buffer

_RARE_CODECS: Final = frozenset((Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainBatches:
    """Whole batches, to be sent one part after the other. `offsets`: how many they span.

    `decompressed_bytes`: of so many `decompressed` batches, after decompression.
    """

    parts: Sequence[Buffer]
    size_bytes: int
    offsets: int
    decompressed: int
    decompressed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLimits:
    """`at_least_one`: the first batch is given even where it is larger than `reply_bytes`.

    A batch that would be larger than `batch_bytes` stays as it is: what it claims to hold must not hurt.
    """

    reply_bytes: int
    batch_bytes: int
    at_least_one: bool


def plain_batches(stored: memoryview, limits: PlainLimits) -> PlainBatches | None:
    """As many of the `stored` batches, decompressed, as fit; None where all are sent as they are.

    Takes time by what it gives: not for the event loop. A batch whose records cannot be decompressed stays as it
    is. Raises CorruptDataError for a chain of batches that is damaged.
    """
    parts: list[Buffer] = []
    size_bytes = offsets = decompressed = decompressed_bytes = 0
    is_cut = False
    for position, header in walk(stored, 0, len(stored), "stored batches"):
        is_first = not parts and limits.at_least_one
        room_bytes = limits.reply_bytes - size_bytes
        batch: Buffer = stored[position : position + header.size_bytes]
        length = header.size_bytes
        if header.attributes & CODEC_MASK in _RARE_CODECS:
            try:
                plain = _decompressed(
                    stored[position:], header, limits.batch_bytes if is_first else room_bytes
                )
            except DecompressedTooLargeError:
                if not is_first:
                    is_cut = True  # In the client's next fetch it is the first.
                    break
                plain = None
            if plain is not None:
                batch, length = plain, len(plain)
                decompressed += 1
                decompressed_bytes += length
        if length > room_bytes and not is_first:
            is_cut = True
            break
        parts.append(batch)
        size_bytes += length
        offsets += header.last_offset_delta + 1
    if not decompressed and not is_cut:
        return None
    return PlainBatches(
        parts=parts,
        size_bytes=size_bytes,
        offsets=offsets,
        decompressed=decompressed,
        decompressed_bytes=decompressed_bytes,
    )


def _decompressed(stored: memoryview, header: BatchHeader, limit_bytes: int) -> bytearray | None:
    """The first batch with its records decompressed; None when they cannot be. Raises DecompressedTooLargeError."""
    try:
        compressed = stored[HEADER_SIZE : header.size_bytes]
        records = decompress(header.codec, compressed, max(0, limit_bytes - HEADER_SIZE))
    except DecompressedTooLargeError:
        raise
    except CorruptDataError:
        return None
    plain = bytearray(HEADER_SIZE) + records
    fields = header._replace(
        batch_length=MIN_BATCH_LENGTH + len(records), attributes=header.attributes & ~CODEC_MASK
    )
    write_header(plain, 0, fields)
    write_crc(plain, 0)
    return plain
