"""LZ4 frames as Kafka wants them: independent blocks of 64 KiB, no checksums but the header's.

    header   magic 04 22 4D 18, FLG 60 (version 1, independent blocks), BD 40 (64 KiB), header checksum 82
    block    length uint32, little-endian (high bit: the block is stored as it is), the block; repeated
    end      00 00 00 00

Kafka's reader refuses linked blocks (KafkaLZ4BlockInputStream). Any legal frame is read.
"""

import struct
import threading

import cramjam
import lz4.block
import lz4.frame

BLOCK_BYTES = 64 * 1024
"""The block size of Kafka's own writer; its reader takes a buffer of the size that the header names."""

_HEADER = bytes.fromhex("04224d18604082")
_END = bytes(4)
_LENGTH = struct.Struct("<I")
_STORED = 0x8000_0000
_FLAGS_POSITION = 4
_CONTENT_SIZE_FLAG = 0x08
_DICTIONARY_FLAG = 0x01
# One byte of a match length stands for at most 255 bytes.
_MAX_RATIO = 255


def _bound(length: int) -> int:
    """The most bytes that a block of `length` bytes can take."""
    return length + length // 255 + 16


class _Scratch(threading.local):
    """Where a block goes when the room left might be too small for the library's worst case."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_bound(BLOCK_BYTES)))


_scratch = _Scratch()


def compress_into_room(data: memoryview, room: memoryview, high_level: int | None = None) -> int:
    """Compress `data` to the start of `room`; the bytes written, or 0 when they do not fit.

    `high_level`: that of the high compressor; None is the fast one.
    """
    end = len(room) - len(_END)
    position = len(_HEADER)
    if end < position:
        return 0
    room[:position] = _HEADER
    for start in range(0, len(data), BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES]
        body = position + _LENGTH.size
        direct = end - body >= _bound(len(block))
        target = room[body:] if direct else _scratch.view
        if high_level is None:
            length = cramjam.lz4.compress_block_into(block, target, store_size=False)
        else:
            length = _compress_high(block, target, high_level)
        stored = length >= len(block)
        if stored:
            length = len(block)
        if body + length > end:
            return 0
        if stored:
            room[body : body + length] = block
        elif not direct:
            room[body : body + length] = _scratch.view[:length]
        _LENGTH.pack_into(room, position, length | (_STORED if stored else 0))
        position = body + length
    room[position : position + len(_END)] = _END
    return position + len(_END)


def _compress_high(block: memoryview, target: memoryview, level: int) -> int:
    compressed = lz4.block.compress(block, mode="high_compression", compression=level, store_size=False)
    target[: len(compressed)] = compressed
    return len(compressed)


def decompress(data: memoryview, limit_bytes: int, *, ignore_header_checksum: bool) -> bytes | None:
    """The contents of the one frame in `data`; None when they are more than `limit_bytes`.

    Raises ValueError, EOFError or RuntimeError for anything else.
    """
    source = _with_header_checksum(data) if ignore_header_checksum else data
    decompressor = lz4.frame.LZ4FrameDecompressor()
    # One byte more than may come, so that the end of the frame is reached when all is well.
    out: bytes = decompressor.decompress(source, max_length=min(limit_bytes, len(source) * _MAX_RATIO) + 1)
    if len(out) > limit_bytes:
        return None
    if not decompressor.eof:
        raise EOFError("the frame ends early")
    if decompressor.unused_data:
        raise ValueError(f"{len(decompressor.unused_data)} bytes follow the frame")
    return out


def _with_header_checksum(data: memoryview) -> bytes:
    """The frame with the right header checksum, whatever stood there."""
    frame = bytearray(data)
    if len(frame) < len(_HEADER):
        raise EOFError("the frame ends in its header")
    flags = frame[_FLAGS_POSITION]
    checksum_position = len(_HEADER) - 1
    checksum_position += 8 if flags & _CONTENT_SIZE_FLAG else 0
    checksum_position += 4 if flags & _DICTIONARY_FLAG else 0
    if len(frame) <= checksum_position:
        raise EOFError("the frame ends in its header")
    frame[checksum_position] = _xxh32_short(bytes(frame[_FLAGS_POSITION:checksum_position])) >> 8 & 0xFF
    return bytes(frame)


def _xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, which is all that a frame's header checksum needs."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFF_FFFF
    value = prime_5 + len(data)
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = _rotate_left(value + word * prime_3 & mask, 17) * prime_4 & mask
    for byte in data[whole:]:
        value = _rotate_left(value + byte * prime_5 & mask, 11) * prime_1 & mask
    value = (value ^ value >> 15) * prime_2 & mask
    value = (value ^ value >> 13) * prime_3 & mask
    return value ^ value >> 16


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & 0xFFFF_FFFF
