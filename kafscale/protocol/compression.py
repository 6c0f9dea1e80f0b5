"""Kafka's compression codecs as batches use them: into a given buffer, and back out under a limit."""

import threading
import zlib
from contextlib import suppress
from enum import IntEnum

import cramjam
import zstandard

from kafscale.errors import CorruptDataError
from kafscale.protocol import lz4_frames, snappy_frames

GZIP_LEVEL = 6
LZ4_LEVEL = 9
ZSTD_LEVEL = 3
"""Kafka's defaults. -1, gzip's in `compression.gzip.level`, means 6; lz4's 9 means its fast compressor."""

_GZIP_WINDOW_BITS = 31
_ZSTD_LIKELY_RATIO = 16
_MAX_ZSTD_CONTEXTS = 8
# From this size on the library that makes a context for each call, but writes to a given buffer, is the faster.
_ZSTD_LARGE_BYTES = 32 * 1024
_CRAMJAM_ROOM_TOO_SMALL = "failed to write whole buffer"
# What the libraries raise for data that is not theirs.
_PROBLEMS = (
    zlib.error,
    zstandard.ZstdError,
    cramjam.DecompressionError,
    RuntimeError,
    ValueError,
    EOFError,
)


class Codec(IntEnum):
    """A compression codec by its number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def type_name(self) -> str:
        """The name in Kafka's `compression.type`."""
        return self.name.lower()


CODECS = tuple(Codec)
"""All codecs; the index is the number."""


class DecompressedTooLargeError(CorruptDataError):
    """Compressed bytes hold more than the caller allows."""

    def __init__(self, codec: Codec, limit_bytes: int) -> None:
        super().__init__(f"{codec.type_name} data", f"it decompresses to more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class _Contexts(threading.local):
    """Reused by each thread for itself: the library's contexts are not safe to share."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self.from_zstd = zstandard.ZstdDecompressor()
        self._zstd_by_level: dict[int, zstandard.ZstdCompressor] = {}

    def zstd_at(self, level: int) -> zstandard.ZstdCompressor:
        """A context for a level other than the usual one. Few are kept: a high level's takes megabytes."""
        context = self._zstd_by_level.get(level)
        if context is None:
            if len(self._zstd_by_level) >= _MAX_ZSTD_CONTEXTS:
                self._zstd_by_level.clear()
            context = self._zstd_by_level[level] = zstandard.ZstdCompressor(level=level)
        return context


_contexts = _Contexts()


def compress_into_room(codec: Codec, data: memoryview, room: memoryview, level: int | None = None) -> int:
    """Compress `data` to the start of `room`; the bytes written, or 0 when they do not fit.

    `codec` is not NONE. `level`: as in Kafka's `compression.*.level`, None for the default; snappy has none.
    `room` is undefined after a 0.
    """
    match codec:
        case Codec.SNAPPY:
            return snappy_frames.compress_into_room(data, room)
        case Codec.LZ4:
            return lz4_frames.compress_into_room(data, room, None if level == LZ4_LEVEL else level)
        case Codec.ZSTD:
            context = _contexts.zstd if level is None or level == ZSTD_LEVEL else _contexts.zstd_at(level)
            compressed = context.compress(data)
            if len(compressed) > len(room):
                return 0
            room[: len(compressed)] = compressed
            return len(compressed)
        case Codec.GZIP:
            try:
                at = GZIP_LEVEL if level is None or level < 0 else level
                written: int = cramjam.gzip.compress_into(data, room, at)
            except cramjam.CompressionError:
                # Its only way to fail: the room is too small.
                return 0
            return written
        case Codec.NONE:
            raise ValueError("compress_into_room does not take Codec.NONE")


def compress(codec: Codec, data: bytes | bytearray | memoryview) -> bytes:
    """Compress `data` in the framing that Kafka's clients read, also when it grows."""
    if codec is Codec.NONE:
        return bytes(data)
    view = memoryview(data)
    # Enough for every codec: snappy's bound is the largest with a sixth on top of each block.
    room = memoryview(bytearray(len(view) + len(view) // 4 + 1024))
    written = compress_into_room(codec, view, room)
    return bytes(room[:written])


def decompress(
    codec: Codec, data: bytes | bytearray | memoryview, limit_bytes: int, *, magic: int = 2
) -> bytes | memoryview:
    """The decompressed `data`, at most `limit_bytes`; for Codec.NONE a view of `data` itself.

    `magic` is that of the batch: lz4 frames in magic 0 have a wrong header checksum (KAFKA-3160), which is
    not looked at. Raises CorruptDataError for anything but one complete stream, DecompressedTooLargeError
    past the limit; memory is never taken by what the data claims beyond the limit.
    """
    view = memoryview(data)
    if codec is Codec.NONE:
        if len(view) > limit_bytes:
            raise DecompressedTooLargeError(codec, limit_bytes)
        return view
    try:
        match codec:
            case Codec.SNAPPY:
                out = snappy_frames.decompress(view, limit_bytes)
            case Codec.LZ4:
                out = lz4_frames.decompress(view, limit_bytes, ignore_header_checksum=magic == 0)
            case Codec.ZSTD:
                out = _decompress_zstd(view, limit_bytes)
            case Codec.GZIP:
                out = _decompress_gzip(view, limit_bytes)
    except _PROBLEMS as error:
        raise CorruptDataError(f"{codec.type_name} data", str(error)) from error
    if out is None:
        raise DecompressedTooLargeError(codec, limit_bytes)
    return out


def decompress_into_room(codec: Codec, data: bytes | bytearray | memoryview, room: memoryview) -> int:
    """Decompress `data`, of a batch with magic 2, to the start of `room`; the bytes written.

    Raises as `decompress` does, DecompressedTooLargeError when they do not fit; `room` is undefined then.
    """
    view = memoryview(data)
    try:
        if codec is Codec.SNAPPY:
            written = snappy_frames.decompress_into_room(view, room)
        elif codec is Codec.ZSTD and len(view) >= _ZSTD_LARGE_BYTES:
            written = _decompress_zstd_into_room(view, room)
        else:
            out = decompress(codec, data, len(room))
            written = len(out)
            room[:written] = out
    except _PROBLEMS as error:
        raise CorruptDataError(f"{codec.type_name} data", str(error)) from error
    if written is None:
        raise DecompressedTooLargeError(codec, len(room))
    return written


def _decompress_zstd(data: memoryview, limit_bytes: int) -> bytes | None:
    claimed_bytes = zstandard.get_frame_parameters(data).content_size
    is_known = claimed_bytes != zstandard.CONTENTSIZE_UNKNOWN
    room_bytes = claimed_bytes if is_known else min(len(data) * _ZSTD_LIKELY_RATIO, limit_bytes)
    if room_bytes <= limit_bytes:
        # Faster by half; but it neither reads several frames nor says that there was too little room.
        with suppress(zstandard.ZstdError):
            return _contexts.from_zstd.decompress(data, max_output_size=room_bytes, allow_extra_data=False)
    while True:
        room_bytes = min(room_bytes, limit_bytes)
        room = memoryview(bytearray(room_bytes))
        try:
            # Reads frames to the end of the data; the other library leaves what follows the first one unread.
            written: int = cramjam.zstd.decompress_into(data, room)
            return bytes(room[:written])
        except cramjam.DecompressionError as error:
            if str(error) != _CRAMJAM_ROOM_TOO_SMALL:
                raise
        if room_bytes == limit_bytes:
            return None
        room_bytes = max(room_bytes, 1024) * _ZSTD_LIKELY_RATIO


def _decompress_zstd_into_room(data: memoryview, room: memoryview) -> int | None:
    try:
        written: int = cramjam.zstd.decompress_into(data, room)
    except cramjam.DecompressionError as error:
        if str(error) != _CRAMJAM_ROOM_TOO_SMALL:
            raise
        return None
    return written


def _decompress_gzip(data: memoryview, limit_bytes: int) -> bytes | None:
    decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
    out = decompressor.decompress(data, limit_bytes + 1)
    if len(out) > limit_bytes:
        return None
    if not decompressor.eof:
        raise EOFError("the data ends early")
    if decompressor.unused_data:
        raise ValueError(f"{len(decompressor.unused_data)} bytes follow the end of the data")
    return out
