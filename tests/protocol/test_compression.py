"""Each codec against libraries that know nothing of ours, both ways, and against what nobody should send."""

import gzip
import mmap
import random
import struct
import tracemalloc
from collections.abc import Callable

import lz4.frame
import pytest
import snappy
import zstandard
from kafka import codec as kafka_python

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import (
    CODECS,
    Codec,
    DecompressedTooLargeError,
    compress,
    compress_into_room,
    decompress,
    decompress_into_room,
)
from kafscale.protocol.snappy_frames import BLOCK_BYTES

COMPRESSING = CODECS[1:]
LIMIT_BYTES = 10_000_000


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller."""
    return random.Random(12345).randbytes(size)


# Around the block size of snappy and lz4, smooth, rough and mixed.
SAMPLES = [
    b"x",
    b"value-0001 " * 50,
    noise(1000),
    b"ab" * (BLOCK_BYTES // 2),
    b"ab" * (BLOCK_BYTES // 2) + b"c",
    noise(BLOCK_BYTES * 2 + 17),
    b"payload " * 20_000 + noise(70_000) + b"payload " * 20_000,
]


def zstd_without_size(data: bytes) -> bytes:
    """As streaming producers (Java) write it: the frame does not say how much it holds."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


def read_snappy(data: bytes) -> bytes:
    out: bytes = kafka_python.snappy_decode(data)
    return out


READERS: list[tuple[Codec, Callable[[bytes], bytes]]] = [
    (Codec.GZIP, gzip.decompress),
    (Codec.SNAPPY, read_snappy),
    (Codec.LZ4, lz4.frame.decompress),
    (Codec.ZSTD, zstandard.ZstdDecompressor().decompress),
]

WRITERS: list[tuple[str, Codec, Callable[[bytes], bytes]]] = [
    ("gzip", Codec.GZIP, gzip.compress),
    ("raw snappy", Codec.SNAPPY, snappy.compress),
    ("xerial snappy", Codec.SNAPPY, lambda data: kafka_python.snappy_encode(data, xerial_compatible=True)),
    ("lz4", Codec.LZ4, lz4.frame.compress),
    ("lz4, independent blocks", Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=False)),
    ("lz4, checksums", Codec.LZ4, lambda data: lz4.frame.compress(data, content_checksum=True)),
    ("lz4, no size", Codec.LZ4, lambda data: lz4.frame.compress(data, store_size=False)),
    ("zstd", Codec.ZSTD, zstandard.ZstdCompressor().compress),
    ("zstd, no size", Codec.ZSTD, zstd_without_size),
]


def test_numbers_and_names_are_kafkas() -> None:
    assert [(codec.value, codec.type_name) for codec in CODECS] == [
        (0, "none"),
        (1, "gzip"),
        (2, "snappy"),
        (3, "lz4"),
        (4, "zstd"),
    ]


@pytest.mark.parametrize(("codec", "read"), READERS, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_others_read_what_we_write(codec: Codec, read: Callable[[bytes], bytes], data: bytes) -> None:
    assert read(compress(codec, data)) == data


LEVELS = [
    *((Codec.GZIP, level) for level in (-1, *range(1, 10))),
    *((Codec.LZ4, level) for level in range(1, 18)),
    *((Codec.ZSTD, level) for level in (-131072, -7, -1, 0, 1, 2, 3, 4, 12, 19, 22)),
    (Codec.SNAPPY, 5),
]
# Log lines, in which who looks harder finds longer repetitions, and what does not compress at all.
_RANDOM = noise(18_000)
HARD_TO_PACK = b"".join(
    b'{"user":"u%d","page":"/item/%d?from=%d","ms":%d,"agent":"client %d.%d"}\n'
    % (a % 50, b, c % 7, d * e, f % 4, a % 3)
    for a, b, c, d, e, f in struct.iter_unpack("6B", _RANDOM)
) + noise(70_000)


def compressed_at(codec: Codec, data: bytes, level: int | None) -> bytes:
    room = memoryview(bytearray(len(data) * 2 + 1024))
    return bytes(room[: compress_into_room(codec, memoryview(data), room, level)])


@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_others_read_every_level(codec: Codec, level: int) -> None:
    assert dict(READERS)[codec](compressed_at(codec, HARD_TO_PACK, level)) == HARD_TO_PACK


@pytest.mark.parametrize(
    ("codec", "default", "low", "high"),
    [(Codec.GZIP, 6, 1, 9), (Codec.GZIP, -1, 1, 9), (Codec.LZ4, 9, 1, 17), (Codec.ZSTD, 3, -7, 22)],
)
def test_a_level_decides_how_hard_a_codec_tries(codec: Codec, default: int, low: int, high: int) -> None:
    usual = compressed_at(codec, HARD_TO_PACK, None)
    assert compressed_at(codec, HARD_TO_PACK, default) == usual
    assert len(compressed_at(codec, HARD_TO_PACK, high)) < len(usual)
    assert len(compressed_at(codec, HARD_TO_PACK, high)) < len(compressed_at(codec, HARD_TO_PACK, low))


def test_lz4s_default_level_is_the_fast_compressor_as_in_kafka() -> None:
    usual = compressed_at(Codec.LZ4, HARD_TO_PACK, 9)
    assert len(usual) > len(compressed_at(Codec.LZ4, HARD_TO_PACK, 8))


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.LZ4, 17), (Codec.ZSTD, 22)])
def test_a_level_fits_into_exactly_the_room_it_needs(codec: Codec, level: int) -> None:
    exact = compressed_at(codec, HARD_TO_PACK, level)
    room = memoryview(bytearray(len(exact)))
    assert compress_into_room(codec, memoryview(HARD_TO_PACK), room, level) == len(exact)
    assert bytes(room) == exact
    assert compress_into_room(codec, memoryview(HARD_TO_PACK), room[:-1], level) == 0


@pytest.mark.parametrize(("codec", "write"), [row[1:] for row in WRITERS], ids=[row[0] for row in WRITERS])
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_we_read_what_others_write(codec: Codec, write: Callable[[bytes], bytes], data: bytes) -> None:
    assert decompress(codec, write(data), len(data)) == data


@pytest.mark.parametrize(("codec", "write"), [row[1:] for row in WRITERS], ids=[row[0] for row in WRITERS])
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_a_room_that_is_just_enough_is_filled(
    codec: Codec, write: Callable[[bytes], bytes], data: bytes
) -> None:
    room = memoryview(bytearray(len(data) + 3))
    for spare in (3, 0):
        assert decompress_into_room(codec, write(data), room[: len(data) + spare]) == len(data)
        assert room[: len(data)] == data
    with pytest.raises(DecompressedTooLargeError):
        decompress_into_room(codec, write(data), room[: len(data) - 1])
    with pytest.raises(CorruptDataError):
        decompress_into_room(codec, write(data)[:-1], room)


def test_several_zstd_frames_are_read() -> None:
    data = zstandard.ZstdCompressor().compress(b"first ") + zstd_without_size(b"second")
    assert decompress(Codec.ZSTD, data, LIMIT_BYTES) == b"first second"
    assert decompress_into_room(Codec.ZSTD, data, memoryview(bytearray(12))) == 12


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"", *SAMPLES], ids=len)
def test_we_read_what_we_write(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


def test_no_codec_gives_the_data_itself() -> None:
    assert compress(Codec.NONE, b"as it is") == b"as it is"
    assert decompress(Codec.NONE, b"as it is", 8) == b"as it is"
    with pytest.raises(DecompressedTooLargeError):
        decompress(Codec.NONE, b"as it is", 7)
    with pytest.raises(ValueError, match="NONE"):
        compress_into_room(Codec.NONE, memoryview(b"as it is"), memoryview(bytearray(100)))


def test_snappy_block_with_a_false_size_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptDataError, match="claims to hold 90000000"):
            decompress(Codec.SNAPPY, snappy_that_claims(90_000_000), 100_000_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_lz4_blocks_are_independent_as_kafkas_reader_demands() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, b"payload " * 20_000))
    assert info["block_linked"] is False
    assert info["content_checksum"] is False
    assert info["block_size"] == BLOCK_BYTES


def test_snappy_has_the_header_and_block_lengths_that_java_reads() -> None:
    compressed = compress(Codec.SNAPPY, b"payload " * 20_000)
    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    position, blocks = 16, []
    while position < len(compressed):
        (length,) = struct.unpack_from(">i", compressed, position)
        blocks.append(snappy.decompress(compressed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert [len(block) for block in blocks] == [65536, 65536, 28928]
    assert b"".join(blocks) == b"payload " * 20_000


def test_snappy_with_its_version_in_the_other_byte_order_is_read() -> None:
    # Redpanda writes it so (dpkp/kafka-python#2414).
    swapped = b"\x82SNAPPY\x00" + struct.pack("<ii", 1, 1) + compress(Codec.SNAPPY, b"abc" * 100)[16:]
    assert decompress(Codec.SNAPPY, swapped, 300) == b"abc" * 100


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_a_room_is_filled_to_the_last_byte_or_not_used(codec: Codec, data: bytes) -> None:
    exact = compress(codec, data)
    room = mmap.mmap(-1, len(exact) + 10)
    view = memoryview(room)
    try:
        assert compress_into_room(codec, memoryview(data), view[: len(exact)]) == len(exact)
        assert view[: len(exact)] == exact
        assert bytes(view[len(exact) :]) == bytes(10), "it wrote past the room"
        assert compress_into_room(codec, memoryview(data), view[: len(exact) - 1]) == 0
        assert compress_into_room(codec, memoryview(data), view[:0]) == 0
        assert bytes(view[len(exact) :]) == bytes(10), "it wrote past the room"
    finally:
        view.release()
        room.close()


def test_lz4_of_magic_0_is_read_with_its_wrong_header_checksum() -> None:
    # KAFKA-3160: the checksum was taken over the frame's magic number too.
    for frame in (
        compress(Codec.LZ4, b"payload " * 100),
        lz4.frame.compress(b"payload " * 100, store_size=True, content_checksum=True),
    ):
        checksum_position = 14 if frame[4] & 0x08 else 6
        wrong = bytearray(frame)
        wrong[checksum_position] ^= 0xFF
        assert decompress(Codec.LZ4, wrong, 800, magic=0) == b"payload " * 100
        with pytest.raises(CorruptDataError):
            decompress(Codec.LZ4, wrong, 800, magic=1)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 6, 7, 10, 17, 20])
def test_a_stream_cut_short_is_refused(codec: Codec, length: int) -> None:
    whole = compress(codec, b"value-0001 " * 5000)
    for cut in (whole[:length], whole[: len(whole) - 1 - length]):
        # A cut at the end of the snappy header is a legal stream of no blocks.
        if codec is Codec.SNAPPY and len(cut) == 16:
            continue
        with pytest.raises(CorruptDataError):
            decompress(codec, cut, LIMIT_BYTES)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_what_follows_the_stream_is_refused(codec: Codec) -> None:
    with pytest.raises(CorruptDataError):
        decompress(codec, compress(codec, b"value-0001 " * 50) + b"more of it", LIMIT_BYTES)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("limit_bytes", [0, 1, 5_499, 54_999])
def test_more_than_the_limit_is_refused(codec: Codec, limit_bytes: int) -> None:
    with pytest.raises(DecompressedTooLargeError, match=f"more than {limit_bytes} bytes"):
        decompress(codec, compress(codec, b"value-0001 " * 5000), limit_bytes)


def snappy_that_claims(length: int) -> bytes:
    varint = bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return bytes(varint) + bytes(40)


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (Codec.GZIP, gzip.compress(bytes(200_000_000), 1)),
        (Codec.SNAPPY, snappy_that_claims(0xFFFF_FFFF)),
        (Codec.SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 0x7FFF_FFFF)),
        (
            Codec.SNAPPY,
            b"\x82SNAPPY\x00" + bytes(8) + (struct.pack(">i", 45) + snappy_that_claims(900)) * 50_000,
        ),
        (Codec.LZ4, lz4.frame.compress(bytes(200_000_000), block_linked=False)),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(bytes(200_000_000))),
        (Codec.ZSTD, zstd_without_size(bytes(200_000_000))),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(bytes(900_000)) * 200),
    ],
    ids=["gzip", "snappy", "snappy block", "snappy blocks", "lz4", "zstd", "zstd, no size", "zstd frames"],
)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: Codec, bomb: bytes) -> None:
    limit_bytes = 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(CorruptDataError):
            decompress(codec, bomb, limit_bytes)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * limit_bytes + 20 * len(bomb)
