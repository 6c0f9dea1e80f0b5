"""Descriptor sets as protoc makes them, put together without protoc."""

from collections.abc import Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    OneofDescriptorProto,
)

_KINDS = """
    double float int64 uint64 int32 fixed64 fixed32 bool string bytes uint32 sfixed32 sfixed64 sint32 sint64
"""
_SCALARS = {name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}") for name in _KINDS.split()}
_LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def field(
    name: str, number: int, kind: str, label: str = "optional", *, oneof: int | None = None
) -> FieldDescriptorProto:
    """`kind`: a scalar's name, `enum X` or a message's full name with a leading dot."""
    found = FieldDescriptorProto(name=name, number=number, label=_LABELS[label])
    if kind.startswith("enum "):
        found.type, found.type_name = FieldDescriptorProto.TYPE_ENUM, kind.removeprefix("enum ")
    elif kind.startswith("."):
        found.type, found.type_name = FieldDescriptorProto.TYPE_MESSAGE, kind
    else:
        found.type = _SCALARS[kind]
    if oneof is not None:
        found.oneof_index = oneof
    return found


def presence(found: FieldDescriptorProto, index: int) -> FieldDescriptorProto:
    """proto3's `optional`: the field is alone in a oneof of its own, number `index`."""
    found.proto3_optional, found.oneof_index = True, index
    return found


def map_entry(name: str, key: str, value: str) -> DescriptorProto:
    """The message of a map's entries, as it is written: the map's field is repeated and of this type."""
    entry = message(name, field("key", 1, key), field("value", 2, value))
    entry.options.map_entry = True
    return entry


def message(
    name: str,
    *fields: FieldDescriptorProto,
    nested: Sequence[DescriptorProto] = (),
    oneofs: Sequence[str] = (),
) -> DescriptorProto:
    """A message's descriptor."""
    return DescriptorProto(
        name=name,
        field=fields,
        nested_type=nested,
        oneof_decl=[OneofDescriptorProto(name=oneof) for oneof in oneofs],
    )


def enum(name: str, **values: int) -> EnumDescriptorProto:
    """An enum's descriptor."""
    return EnumDescriptorProto(
        name=name, value=[EnumValueDescriptorProto(name=key, number=number) for key, number in values.items()]
    )


def file(
    *messages: DescriptorProto,
    enums: Sequence[EnumDescriptorProto] = (),
    imports: Sequence[str] = (),
    syntax: str = "proto3",
    name: str = "shop.proto",
) -> FileDescriptorProto:
    """A file of package `shop`."""
    return FileDescriptorProto(
        name=name, package="shop", syntax=syntax, message_type=messages, enum_type=enums, dependency=imports
    )


def descriptor_set(*files: FileDescriptorProto) -> bytes:
    """The output of `protoc --descriptor_set_out`."""
    return bytes(FileDescriptorSet(file=files).SerializeToString())
