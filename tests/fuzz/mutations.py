"""Damages to requests: few at a time, and in the header seldom, so that most requests are looked at."""

import random
import struct
from typing import Final

from kafscale.protocol.header import parse_request_header

EDGES: Final = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x01\x86\xa0",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"\x80" + bytes(7),
)
API_VERSION_CORRELATION: Final = 8
_HEADER_CHANCE: Final = 0.03
_UNDAMAGED_CHANCE: Final = 0.25
_MOST_DAMAGES: Final = 3
_LONGEST_PIECE: Final = 40
_LARGE_CHANCE: Final = 0.0005
_LARGE_BYTES: Final = 300_000


class Mutations:
    """Damages payloads. Everything depends on the chances alone."""

    def __init__(self, chances: random.Random) -> None:
        self._chances = chances

    def damaged(self, payload: bytes, other: bytes) -> bytes:
        """The payload with up to three damages, or none; pieces may come from the other one."""
        chances = self._chances
        if chances.random() < _UNDAMAGED_CHANCE:
            return payload
        data = bytearray(payload)
        first = 0 if chances.random() < _HEADER_CHANCE else body_offset(payload)
        for _ in range(chances.randint(1, _MOST_DAMAGES)):
            self._damage(data, min(first, len(data)), other)
        if len(data) < API_VERSION_CORRELATION:
            data += bytes(API_VERSION_CORRELATION - len(data))
        return bytes(data)

    def _damage(self, data: bytearray, first: int, other: bytes) -> None:
        chances = self._chances
        position = chances.randint(first, len(data))
        length = chances.randint(1, _LONGEST_PIECE)
        match chances.randrange(8):
            case 0 | 1 if position < len(data):
                data[position] ^= 1 << chances.randrange(8)
            case 2 | 3:
                edge = chances.choice(EDGES)
                data[position : position + len(edge)] = edge
            case 4:
                data[position:position] = data[position : position + length]
            case 5:
                del data[position : position + chances.randint(1, 8)]
            case 6:
                begin = chances.randrange(len(other))
                data[position : position + length] = other[begin : begin + length]
            case _:
                size = _LARGE_BYTES if chances.random() < _LARGE_CHANCE else length
                data[position:position] = chances.randbytes(1) * size


def body_offset(payload: bytes) -> int:
    """Where the body of a valid request begins."""
    return parse_request_header(memoryview(payload)).body_offset


def with_correlation_id(payload: bytes, correlation_id: int) -> bytes:
    """The request with its length, under this correlation id."""
    return struct.pack(">i", len(payload)) + payload[:4] + struct.pack(">i", correlation_id) + payload[8:]
