"""Kafka's primitive wire types, read with every length checked and written without waste."""

import struct
from typing import Final

from kafscale.errors import KafscaleError
from kafscale.protocol.types import Buffer

MAX_ARRAY_ELEMENTS: Final = 100_000
"""Most array elements and tagged fields, all arrays and sections together, that one request may name.

A decoded element takes up to fifty times the bytes it took on the wire; without this limit a frame of
the largest legal size could make the broker allocate gigabytes and think of nothing else for a minute.
Real requests stay far below it.
"""

MAX_STRING_BYTES: Final = 0x7FFF
"""The longest string of every version. Kafka refuses a longer compact string, whose length could be larger."""

MAX_TAGGED_FIELDS: Final = 64
"""Most tagged fields in one section. Kafka's own structs have fewer than ten, most have none."""

UNDERRUN_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError)
"""The errors inside a decoder that reads past the end of a buffer, or text that is not UTF-8."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_MAX_INT32 = 0x7FFF_FFFF
_MIN_TAGGED_FIELD_BYTES = 2
_SMALL_UVARINTS = tuple(bytes((value,)) for value in range(0x80))


class MalformedRequestError(KafscaleError):
    """Bytes of a request break Kafka's wire format. Their connection is to be closed."""


def read_uvarint(data: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes and 31 bits; return it and the position after it.

    Raises `IndexError` at the end of the data.
    """
    byte = data[pos]
    if byte < 0x80:
        return byte, pos + 1
    value = byte & 0x7F
    for index in range(1, 5):
        byte = data[pos + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > _MAX_INT32:
                break
            return value, pos + index + 1
    raise MalformedRequestError(f"varint at byte {pos} is larger than {_MAX_INT32}")


def uvarint(value: int) -> bytes:
    """Encode a non-negative int as an unsigned varint."""
    if value < 0x80:
        return _SMALL_UVARINTS[value]
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _end_of(what: str, pos: int, length: int, data: Buffer) -> int:
    end = pos + length
    if end > len(data):
        raise MalformedRequestError(
            f"{what} of {length} bytes at byte {pos} ends after the request's {len(data)}"
        )
    return end


def read_nullable_string(data: Buffer, pos: int) -> tuple[str | None, int]:
    """Read a string with an int16 length, -1 meaning null."""
    (length,) = _INT16.unpack_from(data, pos)
    pos += 2
    if length < 0:
        if length == -1:
            return None, pos
        raise MalformedRequestError(f"string at byte {pos} has length {length}")
    end = _end_of("string", pos, length, data)
    return str(data[pos:end], "utf-8"), end


def read_nullable_compact_string(data: Buffer, pos: int) -> tuple[str | None, int]:
    """Read a string with a varint length + 1, 0 meaning null; at most `MAX_STRING_BYTES`."""
    length, pos = read_uvarint(data, pos)
    if length == 0:
        return None, pos
    if length > MAX_STRING_BYTES + 1:
        raise MalformedRequestError(
            f"string at byte {pos} has {length - 1} bytes, the most is {MAX_STRING_BYTES}"
        )
    end = _end_of("string", pos, length - 1, data)
    return str(data[pos:end], "utf-8"), end


def not_null(value: str | None, what: str) -> str:
    """Refuse a null where the schema has none."""
    if value is None:
        raise MalformedRequestError(f"{what} is null")
    return value


def read_string(data: Buffer, pos: int, what: str) -> tuple[str, int]:
    """Read a string with an int16 length that may not be null; `what` names the field in errors."""
    value, pos = read_nullable_string(data, pos)
    return not_null(value, what), pos


def read_compact_string(data: Buffer, pos: int, what: str) -> tuple[str, int]:
    """Read a string with a varint length + 1 that may not be null; `what` names the field in errors."""
    value, pos = read_nullable_compact_string(data, pos)
    return not_null(value, what), pos


def check_count(count: int, min_element_bytes: int, data: Buffer, pos: int, elements_left: int) -> int:
    """Check an array's count (-1 is null, refused here) against what is left of the request.

    Returns how many elements later arrays may still have.
    """
    if count < 0:
        raise MalformedRequestError(f"array before byte {pos} has {count} elements")
    if count * min_element_bytes > len(data) - pos:
        raise MalformedRequestError(
            f"array before byte {pos} claims {count} elements of at least {min_element_bytes} bytes, "
            f"{len(data) - pos} bytes are left"
        )
    if count > elements_left:
        raise MalformedRequestError(
            f"request has more than {MAX_ARRAY_ELEMENTS} array elements and tagged fields"
        )
    return elements_left - count


def skip_tagged_fields(data: Buffer, pos: int, elements_left: int) -> tuple[int, int]:
    """Step over a section of tagged fields; return the position after it and how many elements may still follow.

    A section of more than `MAX_TAGGED_FIELDS` is refused before it is walked, and its fields count as elements do.
    """
    if data[pos] == 0:  # as nearly every client sends
        return pos + 1, elements_left
    count, pos = read_uvarint(data, pos)
    if count > MAX_TAGGED_FIELDS:
        raise MalformedRequestError(
            f"section before byte {pos} has {count} tagged fields, the most is {MAX_TAGGED_FIELDS}"
        )
    elements_left = check_count(count, _MIN_TAGGED_FIELD_BYTES, data, pos, elements_left)
    for _ in range(count):
        _, pos = read_uvarint(data, pos)
        length, pos = read_uvarint(data, pos)
        pos = _end_of("tagged field", pos, length, data)
    return pos, elements_left


def string(value: str) -> bytes:
    """Encode a string with an int16 length."""
    encoded = value.encode()
    return _INT16.pack(len(encoded)) + encoded


def nullable_string(value: str | None) -> bytes:
    """Encode a string with an int16 length, null as -1."""
    return b"\xff\xff" if value is None else string(value)


def compact_string(value: str) -> bytes:
    """Encode a string with a varint length + 1."""
    encoded = value.encode()
    return uvarint(len(encoded) + 1) + encoded


def nullable_compact_string(value: str | None) -> bytes:
    """Encode a string with a varint length + 1, null as 0."""
    return b"\x00" if value is None else compact_string(value)


def array_count(count: int) -> bytes:
    """Encode an array's int32 count."""
    return _INT32.pack(count)
