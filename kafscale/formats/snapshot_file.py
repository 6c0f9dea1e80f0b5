"""A copy of the metadata store's keys at one revision, as one file. Format: docs/format/metadata-snapshot.md.

    magic "KFSNAP\\0\\1"  header length uint32  header (JSON)  zstd frame  SHA-256 of everything before
    frame: key length uint32, key (UTF-8), value length uint32, value; repeated

Integers are big-endian.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Any, Final

import zstandard

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.metadata.store import NO_LEASE, KeyValue

VERSION: Final = 1
MAX_UNCOMPRESSED_BYTES: Final = 16 * 2**30
"""More than etcd takes (8 GiB is the most that it recommends): a file that claims more is not one of ours."""

_MAGIC: Final = b"KFSNAP\0"
_LENGTH: Final = Struct(">I")
_SHA256_BYTES: Final = 32
_MAX_HEADER_BYTES: Final = 64 * 1024
_PIECE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """The head of a snapshot. `revision`: the store's; `created_ms`: Unix milliseconds; `keys`: how many."""

    cluster_id: str
    namespace: str
    revision: int
    created_ms: int
    keys: int


def lasting(items: Iterable[KeyValue]) -> list[KeyValue]:
    """Those that are worth keeping: what is bound to a lease says who is there now."""
    return [item for item in items if item.lease == NO_LEASE]


def encode_snapshot(header: SnapshotHeader, items: Iterable[KeyValue]) -> list[bytes]:
    """The file, in pieces. `header.keys` is the number of items."""
    described = json.dumps(asdict(header), sort_keys=True).encode()
    pieces = [_MAGIC + bytes([VERSION]), _LENGTH.pack(len(described)), described]
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    for item in items:
        key = item.key.encode()
        for part in (_LENGTH.pack(len(key)), key, _LENGTH.pack(len(item.value)), item.value):
            piece = compressor.compress(part)
            if piece:
                pieces.append(piece)
    pieces.append(compressor.flush())
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    pieces.append(digest.digest())
    return pieces


def decode_snapshot(name: str, data: bytes) -> tuple[SnapshotHeader, dict[str, bytes]]:
    """The snapshot in the file. `name` is for errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if not data.startswith(_MAGIC):
        raise CorruptDataError(name, f"it begins with {data[:8]!r}, not as a snapshot of the metadata store")
    version = data[len(_MAGIC)] if len(data) > len(_MAGIC) else 0
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    body, digest = data[:-_SHA256_BYTES], data[-_SHA256_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise CorruptDataError(name, "its checksum does not fit: it is cut short or damaged")
    position = len(_MAGIC) + 1
    header, position = _header(name, body, position)
    entries = dict(_entries(name, memoryview(body)[position:]))
    if len(entries) != header.keys:
        raise CorruptDataError(name, f"it holds {len(entries)} keys where its header says {header.keys}")
    return header, entries


def _header(name: str, body: bytes, position: int) -> tuple[SnapshotHeader, int]:
    if len(body) < position + _LENGTH.size:
        raise CorruptDataError(name, "it ends before its header")
    (length,) = _LENGTH.unpack_from(body, position)
    position += _LENGTH.size
    if length > min(_MAX_HEADER_BYTES, len(body) - position):
        raise CorruptDataError(name, f"a header of {length} bytes does not fit")
    try:
        fields: Any = json.loads(body[position : position + length])
        header = SnapshotHeader(**fields)
    except (ValueError, TypeError) as problem:
        raise CorruptDataError(name, f"header: {problem}") from problem
    for field, kind in (
        ("cluster_id", str),
        ("namespace", str),
        ("revision", int),
        ("created_ms", int),
        ("keys", int),
    ):
        if type(getattr(header, field)) is not kind:
            raise CorruptDataError(name, f"header: {field} is {getattr(header, field)!r}")
    return header, position + length


def _entries(name: str, compressed: memoryview) -> Iterator[tuple[str, bytes]]:
    """Keys and values, which come in pieces."""
    buffer = bytearray()
    total = 0
    reader = zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=False)

    def take(count: int) -> bytes:
        nonlocal total
        while len(buffer) < count:
            try:
                piece = reader.read(_PIECE_BYTES)
            except zstandard.ZstdError as problem:
                raise CorruptDataError(name, f"zstd: {problem}") from problem
            total += len(piece)
            if total > MAX_UNCOMPRESSED_BYTES:
                raise CorruptDataError(name, f"it grows beyond {MAX_UNCOMPRESSED_BYTES} bytes")
            if not piece:
                break
            buffer.extend(piece)
        found = bytes(buffer[:count])
        del buffer[:count]
        return found

    while True:
        length = take(_LENGTH.size)
        if not length:
            return
        key = _sized(name, take, length)
        value = _sized(name, take, take(_LENGTH.size))
        try:
            yield key.decode(), value
        except UnicodeDecodeError as problem:
            raise CorruptDataError(name, f"key {key!r}: {problem}") from problem


def _sized(name: str, take: Any, length: bytes) -> bytes:
    if len(length) == _LENGTH.size:
        (count,) = _LENGTH.unpack(length)
        found: bytes = take(count)
        if len(found) == count:
            return found
    raise CorruptDataError(name, "it ends within an entry")
