"""Snappy as Kafka's clients frame it: the Java library's header, then raw snappy blocks with their lengths.

    header   82 53 4E 41 50 50 59 00 ("\\x82SNAPPY\\0"), version int32 = 1, compatible version int32 = 1
    block    length int32, raw snappy block of that length; repeated to the end

Java's SnappyInputStream and librdkafka read blocks of any size. Some clients (librdkafka among them) send one
raw block without the header: read, never written.
"""

import struct
import threading
from collections.abc import Iterator

import cramjam

BLOCK_BYTES = 64 * 1024
"""Snappy looks back no further than this, so larger blocks would not be smaller in sum."""

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_LENGTH = struct.Struct(">i")
# The densest element is a copy of 64 bytes in 3; a block that claims more than that is not snappy.
_MAX_RATIO = 22


def _bound(length: int) -> int:
    """The most bytes that a raw block of `length` bytes can take."""
    return 32 + length + length // 6


class _Scratch(threading.local):
    """Where a block goes when the room left might be too small for the library's worst case."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_bound(BLOCK_BYTES)))


_scratch = _Scratch()


def compress_into_room(data: memoryview, room: memoryview) -> int:
    """Compress `data` to the start of `room`; the bytes written, or 0 when they do not fit."""
    end = len(room)
    position = len(_HEADER)
    if end < position:
        return 0
    room[:position] = _HEADER
    for start in range(0, len(data), BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES]
        body = position + _LENGTH.size
        if end - body >= _bound(len(block)):
            length = cramjam.snappy.compress_raw_into(block, room[body:])
        else:
            length = cramjam.snappy.compress_raw_into(block, _scratch.view)
            if body + length > end:
                return 0
            room[body : body + length] = _scratch.view[:length]
        _LENGTH.pack_into(room, position, length)
        position = body + length
    return position


def decompress(data: memoryview, limit_bytes: int) -> bytes | None:
    """The decompressed `data`, framed or raw; None when it is more than `limit_bytes`.

    Raises ValueError or cramjam.DecompressionError for anything else.
    """
    framed = _is_framed(data)
    # Twice over the blocks rather than once with a list: there may be very many very small ones.
    total = 0
    for block in _blocks(data, framed=framed):
        total += _decompressed_length(block)
        if total > limit_bytes:
            return None
    output = memoryview(bytearray(total))
    decompress_into_room(data, output)
    return bytes(output)


def decompress_into_room(data: memoryview, room: memoryview) -> int | None:
    """The same to the start of `room`; the bytes written, None when they do not fit. Raises as `decompress` does."""
    framed = _is_framed(data)
    position = 0
    for block in _blocks(data, framed=framed):
        length = _decompressed_length(block)
        if length > len(room) - position:
            return None
        if length:
            written = cramjam.snappy.decompress_raw_into(block, room[position : position + length])
            if written != length:
                raise ValueError(f"a block gave {written} bytes, it claims {length}")
        position += length
    return position


def _is_framed(data: memoryview) -> bool:
    # The version fields are not looked at: some brokers write them in the other byte order.
    return len(data) >= len(_HEADER) and data[: len(_MAGIC)] == _MAGIC


def _blocks(data: memoryview, *, framed: bool) -> Iterator[memoryview]:
    if not framed:
        yield data
        return
    position = len(_HEADER)
    while position < len(data):
        if len(data) - position < _LENGTH.size:
            raise ValueError(f"{len(data) - position} bytes at the end are shorter than a block's length")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 < length <= len(data) - position:
            raise ValueError(f"block length {length} where {len(data) - position} bytes are left")
        yield data[position : position + length]
        position += length


def _decompressed_length(block: memoryview) -> int:
    if not block:
        raise ValueError("there is no data")
    length: int = cramjam.snappy.decompress_raw_len(block)
    if length > len(block) * _MAX_RATIO:
        raise ValueError(f"a block of {len(block)} bytes claims to hold {length}")
    if length == 0 and len(block) > 1:
        raise ValueError(f"a block of {len(block)} bytes claims to be empty")
    return length
