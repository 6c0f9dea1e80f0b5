"""kio as an oracle: hypothesis strategies for its typed messages, and their values in our terms."""

import dataclasses
import datetime
import functools
import io
import types
import typing
from typing import Any

from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs.types import BitField
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kafscale.protocol.api_keys import ApiKey

Entity = Any
"""A kio message or a struct in one: a frozen dataclass."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MAX_DATETIME_S = 253_402_300_799
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_MAX_ARRAY = 3


def _ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _ints(8),
    "int16": _ints(16),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": _ints(32),
    "int64": _ints(64),
    "float64": st.floats(allow_nan=False),
    "string": _TEXT,
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=40),
    "uuid": st.uuids(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _ints(32).map(lambda ms: datetime.timedelta(milliseconds=ms)),
    "timedelta_i64": _ints(40).map(lambda ms: datetime.timedelta(milliseconds=ms)),
    # Whole seconds: kio reads milliseconds by way of a float.
    "datetime_i64": st.integers(0, _MAX_DATETIME_S).map(
        lambda seconds: _EPOCH + datetime.timedelta(seconds=seconds)
    ),
}


@functools.cache
def entities(entity_type: Any) -> st.SearchStrategy[Entity]:
    """Every field of its type, nulls and empty arrays included."""
    hints = typing.get_type_hints(entity_type)
    fields = {field.name: _values(hints[field.name], field) for field in dataclasses.fields(entity_type)}
    return st.builds(entity_type, **fields)


def _values(hint: Any, field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (inner,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
        return st.none() | _values(inner, field)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if isinstance(inner, types.UnionType):  # kio says so of UUIDs, zero being none; not of strings
            inner = next(part for part in typing.get_args(inner) if part is not types.NoneType)
        return st.lists(_values(inner, field), max_size=_MAX_ARRAY).map(tuple)
    if dataclasses.is_dataclass(hint):
        entity_type: Any = hint
        return entities(entity_type)
    return _STRATEGIES[field.metadata["kafka_type"]]


def kio_versions(api_key: ApiKey) -> list[int]:
    """The versions for which kio has a request and a response. Imports none of them: that takes a second."""
    by_version = schema_name_map[api_key_map[api_key]] if api_key in api_key_map else {}
    both = {EntityType.request, EntityType.response}
    return sorted(version for version, types in by_version.items() if both <= types.keys())


def encode(entity: Entity) -> bytes:
    """The entity's bytes, without a header."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def decode_frame(entity_type: type[Entity], frame: bytes, correlation_id: int) -> Entity:
    """A whole response frame as kio reads it, its length and header checked."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header_type = entity_type.__header_schema__
    header, size = entity_reader(header_type)(frame, 4)
    assert header.correlation_id == correlation_id
    entity, body_size = entity_reader(entity_type)(frame, 4 + size)
    assert 4 + size + body_size == len(frame)
    return entity


def plain(value: Any) -> Any:
    """A kio value in plain types: milliseconds, ints, lists; an entity as the list of its fields' values."""
    match value:
        case datetime.timedelta():
            return round(value / datetime.timedelta(milliseconds=1))
        case datetime.datetime():
            return round((value - _EPOCH) / datetime.timedelta(milliseconds=1))
        case tuple():
            return [plain(item) for item in value]
        case ErrorCode():
            return int(value)
        case _ if dataclasses.is_dataclass(value):
            return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return value


def plain_message(message: Any) -> Any:
    """A kafka-python message in the same plain types, fields in the order of its schema."""
    if isinstance(message, list):
        return [plain_message(item) for item in message]
    if not hasattr(message, "_struct"):
        return message
    fields = [field for field in message._struct._fields if field.for_version_q(message._version)]
    return [plain_message(getattr(message, field.name)) for field in fields]


def to_message(value: Any, schema: Any, message_class: Any, version: int) -> Any:
    """Build a kafka-python message from an entity, field by field in schema order."""
    fields = [field for field in schema._fields if field.for_version_q(version)]
    entity_fields = dataclasses.fields(value)
    assert [_bare_name(field) for field in fields] == [_bare_name(field) for field in entity_fields]
    values = {
        field.name: _to_message_value(getattr(value, entity_field.name), field, version)
        for field, entity_field in zip(fields, entity_fields, strict=True)
    }
    return message_class(version=version, **values)


def _bare_name(field: Any) -> str:
    """kio drops the unit from a name; kafka-python renames one field for its own convenience."""
    return str(field.name).removesuffix("_ms").removeprefix("topic_").removeprefix("cluster_")


def _to_message_value(value: Any, field: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct_array():
        return [to_message(item, field.array_of, field.data_class, version) for item in value]
    if field.is_struct():
        return to_message(value, field, field.data_class, version)
    if field.type_str == "bitfield":
        bits = BitField.from_32_bit_field(value & 0xFFFF_FFFF)
        return None if bits == {31} else bits
    return plain(value)
