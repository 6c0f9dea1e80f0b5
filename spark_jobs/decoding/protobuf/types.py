"""Protobuf's types as Spark's: unsigned numbers keep their value, wrappers are unwrapped, enums are names."""

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from pyspark.sql import types as st

from kafscale.errors import SettingError

_SCALARS: dict[int, st.DataType] = {
    FieldDescriptor.TYPE_DOUBLE: st.DoubleType(),
    FieldDescriptor.TYPE_FLOAT: st.FloatType(),
    FieldDescriptor.TYPE_INT64: st.LongType(),
    FieldDescriptor.TYPE_SINT64: st.LongType(),
    FieldDescriptor.TYPE_SFIXED64: st.LongType(),
    FieldDescriptor.TYPE_UINT64: st.DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: st.DecimalType(20, 0),
    FieldDescriptor.TYPE_INT32: st.IntegerType(),
    FieldDescriptor.TYPE_SINT32: st.IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: st.IntegerType(),
    FieldDescriptor.TYPE_UINT32: st.LongType(),
    FieldDescriptor.TYPE_FIXED32: st.LongType(),
    FieldDescriptor.TYPE_BOOL: st.BooleanType(),
    FieldDescriptor.TYPE_STRING: st.StringType(),
    FieldDescriptor.TYPE_BYTES: st.BinaryType(),
    FieldDescriptor.TYPE_ENUM: st.StringType(),
}
TIMESTAMP = "google.protobuf.Timestamp"
JSON_LIKE = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
UNSIGNED_64 = frozenset({FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64})


_OF_THE_RUNTIME = frozenset(dir(Message))


def spark_type(descriptor: Descriptor, source: str) -> st.DataType:
    """The type of the column for such messages.

    Raises `SettingError`, naming `source`, for recursive ones, and for fields that hide what the runtime needs.
    """
    return _message(descriptor, source, ())


def is_map(field: FieldDescriptor) -> bool:
    """True if the field is a map, which Protobuf writes as a repeated message of key and value."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _message(descriptor: Descriptor, source: str, within: tuple[str, ...]) -> st.DataType:
    name = descriptor.full_name
    if name == TIMESTAMP:
        return st.TimestampType()
    if name in JSON_LIKE:
        return st.StringType()
    if name in WRAPPERS:
        return _SCALARS[descriptor.fields_by_name["value"].type]
    if not descriptor.fields:
        return st.BooleanType()  # whether it is there is all that such a message says
    if name in within:
        raise SettingError(f"{source}: message {name} contains itself, which no column can hold")
    hidden = next((field.name for field in descriptor.fields if field.name in _OF_THE_RUNTIME), None)
    if hidden is not None:
        raise SettingError(
            f"{source}: message {name} has a field {hidden!r}, which hides what Protobuf's runtime for Python needs; "
            "legal is any other name with the same number"
        )
    return st.StructType(
        [
            st.StructField(field.name, _field(field, source, (*within, name)), True)
            for field in descriptor.fields
        ]
    )


def _field(field: FieldDescriptor, source: str, within: tuple[str, ...]) -> st.DataType:
    if is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return st.MapType(_single(key, source, within), _single(value, source, within), True)
    single = _single(field, source, within)
    return st.ArrayType(single, True) if field.is_repeated else single


def _single(field: FieldDescriptor, source: str, within: tuple[str, ...]) -> st.DataType:
    if field.message_type is not None:
        return _message(field.message_type, source, within)
    return _SCALARS[field.type]
