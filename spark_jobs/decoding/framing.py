"""Confluent's framing: a magic byte 0, a 4-byte schema id, and for Protobuf the indexes of the message.

Source: Confluent's documentation of the wire format of its serializers.
"""

from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.problems import UndecodableError, shown

MAGIC = 0
HEADER_BYTES = 5
_MAX_VARINT_BYTES = 10
_MAX_INDEXES = 100


def is_framed(data: bytes) -> bool:
    """True if `data` may begin with the header."""
    return len(data) >= HEADER_BYTES and data[0] == MAGIC


def schema_id(data: bytes) -> int:
    """The schema id. Raises `UndecodableError` for a value without the header."""
    if not data:
        raise UndecodableError("is empty, and Confluent's framing has at least 5 bytes")
    if data[0] != MAGIC:
        raise UndecodableError(
            f"begins with byte {data[0]}, and Confluent's framing begins with magic byte 0"
        )
    if len(data) < HEADER_BYTES:
        raise UndecodableError(f"has {len(data)} bytes, and Confluent's framing has at least 5")
    return int.from_bytes(data[1:HEADER_BYTES], "big")


def unframed_text(data: bytes, framing: Framing) -> bytes:
    """The content of a value in a text format, which itself never begins with the magic byte.

    Raises `UndecodableError`.
    """
    if framing is Framing.NONE or (framing is Framing.AUTO and data[:1] != b"\x00"):
        return data
    schema_id(data)
    return data[HEADER_BYTES:]


def message_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """The path to a Protobuf message in its file (outer messages first) and the position behind it.

    A count of 0 stands for the first message. Raises `UndecodableError`.
    """
    count, position = _zigzag(data, position)
    if not 0 <= count <= _MAX_INDEXES:
        raise UndecodableError(f"names {shown(count)} message indexes, and 0 to {_MAX_INDEXES} are legal")
    indexes = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        if index < 0:
            raise UndecodableError(f"has the message index {index}, and none is below 0")
        indexes.append(index)
    return tuple(indexes) or (0,), position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for count in range(_MAX_VARINT_BYTES):
        if position + count >= len(data):
            raise UndecodableError("ends within the message indexes of Confluent's framing")
        byte = data[position + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + count + 1
    raise UndecodableError("has a message index of more than 10 bytes")
