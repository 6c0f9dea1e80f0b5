"""Converts parsed Protobuf messages to the values that `pyarrow.array` takes for their column."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from spark_jobs.decoding.problems import UndecodableError
from spark_jobs.decoding.protobuf.types import JSON_LIKE, TIMESTAMP, UNSIGNED_64, WRAPPERS, is_map

Convert = Callable[[Any], object]

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 and 9999
_NANOS_PER_SEC = 10**9


def message_converter(descriptor: Descriptor) -> Convert:
    """A function from a message to its value. It raises `UndecodableError`.

    A field without presence that is not written has its default, as every reader of Protobuf sees it; one with
    presence (optional, in a oneof, a message) is null.
    """
    name = descriptor.full_name
    if name == TIMESTAMP:
        return _timestamp
    if name in JSON_LIKE:
        return _json_text
    if name in WRAPPERS:
        convert = _scalar(descriptor.fields_by_name["value"])
        return (lambda message: message.value) if convert is None else lambda message: convert(message.value)
    if not descriptor.fields:
        return lambda _message: True
    return _struct([(field.name, field.has_presence, _field(field)) for field in descriptor.fields])


def _struct(fields: list[tuple[str, bool, Convert | None]]) -> Convert:
    def of(message: Message) -> object:
        found: dict[str, object] = {}
        name = ""
        try:
            for name, has_presence, convert in fields:
                if has_presence and not message.HasField(name):
                    found[name] = None
                elif convert is None:
                    found[name] = getattr(message, name)
                else:
                    found[name] = convert(getattr(message, name))
        except UndecodableError as problem:
            raise problem.within(name) from None
        except UnicodeDecodeError as error:  # a map's key
            raise _no_text(error).within(name) from None
        return found

    return of


def _field(field: FieldDescriptor) -> Convert | None:
    """None if the value needs no conversion."""
    if is_map(field):
        return _map(field)
    convert = _single(field)
    return (list if convert is None else _repeated(convert)) if field.is_repeated else convert


def _single(field: FieldDescriptor) -> Convert | None:
    return _scalar(field) if field.message_type is None else message_converter(field.message_type)


def _scalar(field: FieldDescriptor) -> Convert | None:
    if field.type in UNSIGNED_64:
        return Decimal
    if field.type == FieldDescriptor.TYPE_STRING:
        return _text
    return _enum(field.enum_type) if field.enum_type is not None else None


def _text(value: Any) -> object:
    """Strings were not checked before proto3; the runtime then returns bytes for one that is not UTF-8."""
    if type(value) is not str:
        try:
            return bytes(value).decode()
        except UnicodeDecodeError as error:
            raise _no_text(error) from None
    return value


def _no_text(error: UnicodeDecodeError) -> UndecodableError:
    return UndecodableError(f"is not UTF-8 at byte {error.start} of the string")


def _repeated(convert: Convert) -> Convert:
    def of(values: Any) -> object:
        converted: list[object] = []
        try:
            converted.extend(map(convert, values))
        except UndecodableError as problem:
            raise problem.within(len(converted)) from None
        return converted

    return of


def _map(field: FieldDescriptor) -> Convert:
    convert_key = _single(field.message_type.fields_by_name["key"])
    convert_value = _single(field.message_type.fields_by_name["value"])

    def of(values: Any) -> object:
        pairs: list[tuple[object, object]] = []
        for key, value in values.items():
            try:
                converted = value if convert_value is None else convert_value(value)
            except UndecodableError as problem:
                raise problem.within(str(key)) from None
            pairs.append((key if convert_key is None else convert_key(key), converted))
        # The runtime's order differs from that of the bytes, and changes; the same value must give the same row.
        return sorted(pairs, key=_first)

    return of


def _first(pair: tuple[Any, object]) -> Any:
    return pair[0]


def _enum(enum: EnumDescriptor) -> Convert:
    names = {number: value.name for number, value in enum.values_by_number.items()}

    def of(number: int) -> object:
        try:
            return names[number]
        except KeyError:
            raise unnamed(number, enum) from None

    return of


def unnamed(number: int, enum: EnumDescriptor) -> UndecodableError:
    """The problem of a number that the enum has no name for."""
    return UndecodableError(
        f"is number {number}, which enum {enum.full_name} of the descriptor set does not name"
    )


def _timestamp(message: Any) -> object:
    """Microseconds since 1970; finer digits are cut off."""
    seconds, nanos = message.seconds, message.nanos
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND or not 0 <= nanos < _NANOS_PER_SEC:
        raise UndecodableError(f"is no timestamp of the years 1 to 9999: seconds {seconds}, nanos {nanos}")
    return seconds * 10**6 + nanos // 1000


def _json_text(message: Message) -> object:
    try:
        return json_format.MessageToJson(message, indent=None, sort_keys=True, ensure_ascii=False)
    except (json_format.Error, ValueError) as error:
        raise UndecodableError(f"cannot be written as JSON: {error}") from None
