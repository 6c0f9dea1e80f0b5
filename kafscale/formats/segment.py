"""The segment file `.kfs`, version 1: header, record batches verbatim, footer.

Stored format: docs/format/segment.md. All integers are big-endian.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.protocol.compression import Codec
from kafscale.protocol.types import Buffer

MAGIC = b"KAFS"
FOOTER_MAGIC = b"END!"
VERSION = 1

HEADER_SIZE = 32
FOOTER_SIZE = 16
MAX_MESSAGE_COUNT = 2**31 - 1

_HEADER = Struct(">4sHHqiq4x")
_FOOTER = Struct(">Iq4s")

# Not Kafka's numbers: there gzip is 1 and snappy 2.
_FLAGS_OF_CODEC = {Codec.NONE: 0, Codec.SNAPPY: 1, Codec.GZIP: 2, Codec.LZ4: 3, Codec.ZSTD: 4}
_CODEC_OF_FLAGS = {flags: codec for codec, flags in _FLAGS_OF_CODEC.items()}
_CODEC_MASK = 0x07


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The first 32 bytes. `flags` is information only: how a batch is read stands in its attributes."""

    flags: int
    base_offset: int
    message_count: int
    created_ms: int

    @property
    def codec(self) -> Codec | None:
        """The codec that the flags name; None for a number that this format does not use."""
        return _CODEC_OF_FLAGS.get(self.flags & _CODEC_MASK)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFooter:
    """The last 16 bytes. `body_crc`: CRC-32C of everything between header and footer."""

    body_crc: int
    last_offset: int


def encode_header(*, codec: Codec, base_offset: int, message_count: int, created_ms: int) -> bytes:
    """The header. `created_ms`: Unix milliseconds. Raises `ValueError` for a count that does not fit."""
    if not 0 <= message_count <= MAX_MESSAGE_COUNT:
        raise ValueError(f"{message_count} messages in a segment; legal are 0 to {MAX_MESSAGE_COUNT}")
    flags = _FLAGS_OF_CODEC[codec]
    return _HEADER.pack(MAGIC, VERSION, flags, base_offset, message_count, created_ms)


def encode_footer(*, body_crc: int, last_offset: int) -> bytes:
    """The footer of a segment whose body has the given CRC-32C."""
    return _FOOTER.pack(body_crc, last_offset, FOOTER_MAGIC)


def body_crc(parts: Sequence[Buffer]) -> int:
    """The CRC-32C of the joined parts."""
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return crc


def parse_header(name: str, data: Buffer) -> SegmentHeader:
    """The header at the start of `data`. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < HEADER_SIZE:
        raise CorruptDataError(name, f"{len(data)} bytes are shorter than a segment header's {HEADER_SIZE}")
    magic, version, flags, base_offset, message_count, created_ms = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptDataError(name, f"a segment starts with {MAGIC!r}, this with {magic!r}")
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    if base_offset < 0 or message_count < 0:
        raise CorruptDataError(
            name, f"base offset {base_offset} or message count {message_count} is negative"
        )
    return SegmentHeader(
        flags=flags, base_offset=base_offset, message_count=message_count, created_ms=created_ms
    )


def parse_footer(name: str, data: Buffer) -> SegmentFooter:
    """The footer at the end of `data`. Raises `CorruptDataError`."""
    if len(data) < FOOTER_SIZE:
        raise CorruptDataError(name, f"{len(data)} bytes are shorter than a segment footer's {FOOTER_SIZE}")
    crc, last_offset, magic = _FOOTER.unpack_from(data, len(data) - FOOTER_SIZE)
    if magic != FOOTER_MAGIC:
        raise CorruptDataError(name, f"a segment ends with {FOOTER_MAGIC!r}, this with {magic!r}")
    return SegmentFooter(body_crc=crc, last_offset=last_offset)
