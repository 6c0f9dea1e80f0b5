"""Explains why bytes are not a Protobuf message: finds where their wire format or a string breaks.

The runtime only says that something is broken. This walk is for values that it refused.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from spark_jobs.decoding.problems import UndecodableError, shown

_VARINT, _FIXED64, _BYTES, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_MAX_DEPTH = 100
_MAX_VARINT_BYTES = 10


def broken(data: bytes, descriptor: Descriptor) -> UndecodableError:
    """The problem of a value that the runtime refused as a message of `descriptor`."""
    try:
        _walk(data, descriptor, 0)
    except UndecodableError as problem:
        return problem
    return UndecodableError(f"is no message {descriptor.full_name}")


def _walk(data: bytes, descriptor: Descriptor | None, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise UndecodableError(f"is nested deeper than {_MAX_DEPTH} messages")
    position, groups = 0, 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number < 1 << 29:
            raise UndecodableError(f"has the field number {number}; legal are 1 to {(1 << 29) - 1}")
        field = descriptor.fields_by_number.get(number) if descriptor is not None and not groups else None
        if wire_type == _START_GROUP:
            groups += 1
        elif wire_type == _END_GROUP:
            groups -= 1
        else:
            position = _walk_field(data, position, wire_type, field, number, depth)
        if groups < 0:
            raise UndecodableError(f"has the end of a group, field {number}, that did not begin")
    if groups:
        raise UndecodableError("ends within a group")


def _walk_field(
    data: bytes, position: int, wire_type: int, field: FieldDescriptor | None, number: int, depth: int
) -> int:
    name = f"field {number}" if field is None else field.name
    try:
        if wire_type == _VARINT:
            return _varint(data, position)[1]
        if wire_type in (_FIXED64, _FIXED32):
            return _past(data, position, 8 if wire_type == _FIXED64 else 4)
        if wire_type != _BYTES:
            raise UndecodableError(f"has the wire type {wire_type}; legal are 0 to 5")
        length, position = _varint(data, position)
        end = _past(data, position, length)
        if field is not None:
            _walk_content(data[position:end], field, depth)
        return end
    except UndecodableError as problem:
        raise problem.within(name) from None


def _walk_content(content: bytes, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is not None:
        _walk(content, field.message_type, depth + 1)
    elif field.type == FieldDescriptor.TYPE_STRING:
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise UndecodableError(f"is not UTF-8 at byte {error.start} of the string") from None


def _past(data: bytes, position: int, length: int) -> int:
    if length > len(data) - position:
        raise UndecodableError(f"has the length {shown(length)}, and {len(data) - position} bytes are left")
    return position + length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for count in range(_MAX_VARINT_BYTES):
        if position + count >= len(data):
            raise UndecodableError("is cut off within a number")
        byte = data[position + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return number, position + count + 1
    raise UndecodableError("has a number of more than 10 bytes")
