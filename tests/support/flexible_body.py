"""The bodies of flexible requests, made by hand from Kafka's primitive types (KIP-482)."""

import struct
from collections.abc import Iterable

NO_TAGS = b"\x00"
NULL = b"\x00"
"""Of a compact array or string."""


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def text(value: str) -> bytes:
    """A compact string."""
    data = value.encode()
    return varint(len(data) + 1) + data


def array(items: Iterable[bytes]) -> bytes:
    """A compact array of items that are encoded already."""
    encoded = list(items)
    return varint(len(encoded) + 1) + b"".join(encoded)


def int32(value: int) -> bytes:
    """Four bytes, big-endian."""
    return struct.pack(">i", value)


def int32s(values: Iterable[int]) -> bytes:
    """A compact array of them."""
    return array(map(int32, values))
