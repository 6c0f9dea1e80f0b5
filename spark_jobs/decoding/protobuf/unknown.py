"""Fields that a message's descriptor cannot place: newer ones are dropped, all others are problems."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from spark_jobs.decoding.problems import UndecodableError
from spark_jobs.decoding.protobuf.types import is_map
from spark_jobs.decoding.protobuf.values import unnamed

_VARINT = 0


def require_only_newer_fields(message: Message) -> None:
    """Raise `UndecodableError` unless all unknown fields of `message` have numbers that its descriptor lacks.

    An unknown field of a known number has another wire type, or a value that a closed enum does not name: the
    runtime ignores both, and the field would silently be empty. A message of unknown fields only is most likely of
    another type.
    """
    _require(message)
    if not message.ListFields():
        raise UndecodableError(f"has none of the fields of message {message.DESCRIPTOR.full_name}")


def _require(message: Message) -> None:
    known = message.DESCRIPTOR.fields_by_number
    for unknown in UnknownFieldSet(message):
        field = known.get(unknown.field_number)
        if field is not None:
            raise _misplaced(field, unknown.wire_type, unknown.data)
    for field, value in message.ListFields():
        if field.message_type is not None:
            _require_within(field, value)


def _require_within(field: FieldDescriptor, value: Any) -> None:
    if is_map(field):
        if field.message_type.fields_by_name["value"].message_type is None:
            return
        inner: list[tuple[str | int, Message]] = [(str(key), value[key]) for key in value]
    elif field.is_repeated:
        inner = list(enumerate(value))
    else:
        inner = []
    try:
        for step, message in inner:
            try:
                _require(message)
            except UndecodableError as problem:
                raise problem.within(step) from None
        if not inner and not field.is_repeated:
            _require(value)
    except UndecodableError as problem:
        raise problem.within(field.name) from None


def _misplaced(field: FieldDescriptor, wire_type: int, data: Any) -> UndecodableError:
    if field.enum_type is not None and wire_type == _VARINT:
        problem = unnamed(data, field.enum_type)
    else:
        problem = UndecodableError(
            f"is written with wire type {wire_type}, which its type in the descriptor set does not have"
        )
    return problem.within(field.name)


def has_unknown(message: Message) -> bool:
    """True if `message` has an unknown field. Removes it."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() != size)
