"""Decodes request bodies strictly, by kafka-python's schemas into kafka-python's message objects.

kafka-python's own decoders were written for clients that trust their broker: they cut strings that run past
the end, take nulls where there are none, loop over any count, and copy the rest of the body for each
section of tagged fields. A broker trusts no client.
"""

import struct
import uuid
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final

from kafscale.protocol.message_classes import MessageClass
from kafscale.protocol.wire import (
    MAX_ARRAY_ELEMENTS,
    MalformedRequestError,
    check_count,
    read_nullable_compact_string,
    read_nullable_string,
    read_uvarint,
    skip_tagged_fields,
)

_FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}
_INT32 = struct.Struct(">i")
_UUID_BYTES = 16
_ZERO_UUID = bytes(_UUID_BYTES)

Field = Any
"""A kafka-python schema field."""


class Body:
    """A request body, the position of the next field, and how many elements and tagged fields may still follow."""

    __slots__ = ("data", "elements_left", "pos")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0
        self.elements_left = MAX_ARRAY_ELEMENTS


ReadValue = Callable[[Body], Any]
ReadInto = Callable[[Body, Any], None]


def build_request_decoder(message_class: MessageClass, version: int) -> Callable[[bytes], Any]:
    """Return a function from a whole request body to a message object.

    The function raises `MalformedRequestError`, `struct.error`, `IndexError` or `UnicodeDecodeError` on bytes
    that break the schema. Its work and memory are bounded by the body's length and `MAX_ARRAY_ELEMENTS`.
    Bytes after the last field are passed over, as Kafka does: librdkafka 2.16 asks for the metadata of all
    topics, in flexible versions, with three bytes too many.
    """
    schema = message_class._struct
    read, _ = _struct_reader(schema, message_class, version, message_class.flexible_version_q(version))

    def decode(data: bytes) -> Any:
        message = read(Body(data))
        message._header = None  # without which kafka-python does not encode the message again
        return message

    return decode


def _struct_reader(schema: Field, data_class: Any, version: int, flexible: bool) -> tuple[ReadValue, int]:
    """Return a reader of one struct and the fewest bytes the struct takes."""
    if schema.tagged_fields(version)._names:
        raise ValueError(f"{schema.name} v{version} has known tagged fields, which are not read here")
    steps: list[ReadInto] = []
    min_bytes = 0
    for is_fixed, group in groupby(
        schema.untagged_fields(version), lambda field: field.type_str in _FIXED_FORMATS
    ):
        for step, step_min_bytes in (
            _fixed_run(list(group)) if is_fixed else _values(group, version, flexible)
        ):
            steps.append(step)
            min_bytes += step_min_bytes

    def read(body: Body) -> Any:
        value = object.__new__(data_class)
        value._version = version
        value.tags = None
        value.unknown_tags = None
        for step in steps:
            step(body, value)
        if flexible:
            body.pos, body.elements_left = skip_tagged_fields(body.data, body.pos, body.elements_left)
        return value

    return read, min_bytes + flexible


def _fixed_run(fields: list[Field]) -> Iterator[tuple[ReadInto, int]]:
    """One step that reads neighbouring fields of fixed size together."""
    names = tuple(field.name for field in fields)
    layout = struct.Struct(">" + "".join(_FIXED_FORMATS[field.type_str] for field in fields))

    def step(body: Body, value: Any) -> None:
        for name, part in zip(names, layout.unpack_from(body.data, body.pos), strict=True):
            setattr(value, name, part)
        body.pos += layout.size

    yield step, layout.size


def _values(fields: Iterator[Field], version: int, flexible: bool) -> Iterator[tuple[ReadInto, int]]:
    for field in fields:
        read, min_bytes = _value_reader(field, version, flexible)
        yield _assign(field.name, read), min_bytes


def _assign(name: str, read: ReadValue) -> ReadInto:
    def step(body: Body, value: Any) -> None:
        setattr(value, name, read(body))

    return step


def _value_reader(field: Field, version: int, flexible: bool) -> tuple[ReadValue, int]:
    """Return a reader of one field's value and the fewest bytes the value takes."""
    nullable = field.nullable_for_version_q(version)
    if field.is_array():
        return _array_reader(field, version, flexible, nullable)
    if field.is_struct():
        read, min_bytes = _struct_reader(field, field.data_class, version, flexible)
        return (_nullable_struct_reader(read), 1) if nullable else (read, min_bytes)
    return _simple_reader(field.type_str, field.name, flexible, nullable)


def _simple_reader(type_name: str, name: str, flexible: bool, nullable: bool) -> tuple[ReadValue, int]:
    match type_name:
        case "uuid":
            return _read_uuid, _UUID_BYTES
        case "string":
            read_text = read_nullable_compact_string if flexible else read_nullable_string
            return _string_reader(read_text, nullable, name), 1 if flexible else 2
        case "bytes":
            return _bytes_reader(flexible, nullable, name), 1 if flexible else 4
        case other if other in _FIXED_FORMATS:
            return _fixed_reader(other)
        case other:
            raise ValueError(f"field {name} has type {other}, which no request read here has")


def _fixed_reader(type_name: str) -> tuple[ReadValue, int]:
    layout = struct.Struct(">" + _FIXED_FORMATS[type_name])

    def read(body: Body) -> Any:
        (value,) = layout.unpack_from(body.data, body.pos)
        body.pos += layout.size
        return value

    return read, layout.size


def _read_uuid(body: Body) -> uuid.UUID | None:
    """Kafka's zero UUID stands for none, and reads as None."""
    end = body.pos + _UUID_BYTES
    value = body.data[body.pos : end]
    if len(value) != _UUID_BYTES:
        raise MalformedRequestError(f"UUID at byte {body.pos} ends after the request's {len(body.data)}")
    body.pos = end
    return None if value == _ZERO_UUID else uuid.UUID(bytes=value)


def _string_reader(
    read_text: Callable[[bytes, int], tuple[str | None, int]], nullable: bool, name: str
) -> ReadValue:
    def read(body: Body) -> str | None:
        value, body.pos = read_text(body.data, body.pos)
        if value is None and not nullable:
            raise MalformedRequestError(f"{name} is null")
        return value

    return read


def _read_length(body: Body, flexible: bool, nullable: bool, name: str) -> int:
    """Read the length of bytes or the count of an array; -1 is null and checked against `nullable`."""
    if flexible:
        length, body.pos = read_uvarint(body.data, body.pos)
        length -= 1
    else:
        (length,) = _INT32.unpack_from(body.data, body.pos)
        body.pos += 4
    if length < -1 or (length == -1 and not nullable):
        raise MalformedRequestError(f"{name} has length {length}")
    return int(length)


def _bytes_reader(flexible: bool, nullable: bool, name: str) -> ReadValue:
    def read(body: Body) -> bytes | None:
        length = _read_length(body, flexible, nullable, name)
        if length < 0:
            return None
        end = body.pos + length
        if end > len(body.data):
            raise MalformedRequestError(f"{name} of {length} bytes ends after the request's {len(body.data)}")
        value = body.data[body.pos : end]
        body.pos = end
        return value

    return read


def _nullable_struct_reader(read_struct: ReadValue) -> ReadValue:
    """A nullable struct has an int8 before it, negative for null (KIP-893)."""

    def read(body: Body) -> Any:
        is_null = body.data[body.pos] >= 0x80
        body.pos += 1
        return None if is_null else read_struct(body)

    return read


def _array_reader(field: Field, version: int, flexible: bool, nullable: bool) -> tuple[ReadValue, int]:
    element = field.array_of
    if element.is_struct():
        read_element, min_element_bytes = _struct_reader(element, element.data_class, version, flexible)
    else:
        # What the schema says of null is said of the array, never of its elements.
        read_element, min_element_bytes = _simple_reader(
            element.type_str, field.name, flexible, nullable=False
        )
    if min_element_bytes == 0:
        raise ValueError(f"elements of {field.name} v{version} take no bytes, so their count has no bound")

    def read(body: Body) -> list[Any] | None:
        count = _read_length(body, flexible, nullable, field.name)
        if count < 0:
            return None
        body.elements_left = check_count(count, min_element_bytes, body.data, body.pos, body.elements_left)
        return [read_element(body) for _ in range(count)]

    return read, 1 if flexible else 4
