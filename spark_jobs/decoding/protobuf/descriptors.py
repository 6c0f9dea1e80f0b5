"""A message's descriptor from a descriptor set, as `protoc --include_imports --descriptor_set_out` writes it."""

from collections.abc import Mapping

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from kafscale.errors import SettingError
from spark_jobs.decoding.protobuf.types import spark_type
from spark_jobs.decoding.types import require_usable

_SHOWN_NAMES = 20
# protoc's own files may be missing in a set: they are the same everywhere.
WELL_KNOWN = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
}


def check_message(descriptor_set: bytes, message: str, path: str) -> None:
    """Raise `SettingError`, naming the file `path`, if values of `message` cannot be columns."""
    source = f"schema file {path!r}"
    require_usable(
        spark_type(read_descriptor(descriptor_set, message, source), source), source, text_keys=False
    )


def read_descriptor(descriptor_set: bytes, message: str, source: str) -> Descriptor:
    """The descriptor of `message` (its full name). Raises `SettingError`."""
    files = _files(descriptor_set, source)
    pool = DescriptorPool()
    added: set[str] = set()
    for name in files:
        _add(pool, files, name, added, source)
    try:
        return pool.FindMessageTypeByName(message.removeprefix("."))
    except KeyError:
        raise SettingError(
            f"{source}: has no message {message!r}; legal are {_shown(_message_names(files))}"
        ) from None


def index_path(descriptor: Descriptor) -> tuple[int, ...]:
    """The message's position in its file: its index among its outer message's, outermost first."""
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name.values()).index(descriptor),)
    return (*index_path(outer), list(outer.nested_types).index(descriptor))


def _files(descriptor_set: bytes, source: str) -> dict[str, FileDescriptorProto]:
    try:
        found = FileDescriptorSet.FromString(descriptor_set)
    except DecodeError:
        found = FileDescriptorSet()
    files = {file.name: file for file in found.file}
    if not files or "" in files:
        raise SettingError(
            f"{source}: is no descriptor set; make one with protoc --include_imports --descriptor_set_out=FILE"
        )
    return files


def _add(
    pool: DescriptorPool, files: Mapping[str, FileDescriptorProto], name: str, added: set[str], source: str
) -> None:
    """Add the file behind the files that it imports."""
    if name in added:
        return
    added.add(name)
    if name not in files:
        if name not in WELL_KNOWN:
            raise SettingError(
                f"{source}: imports {name!r} and does not hold it; use protoc --include_imports"
            )
        pool.AddSerializedFile(WELL_KNOWN[name])
        return
    for dependency in files[name].dependency:
        _add(pool, files, dependency, added, source)
    try:
        pool.AddSerializedFile(files[name].SerializeToString())
    except (TypeError, KeyError, ValueError) as error:
        raise SettingError(f"{source}: {name}: {error}") from None


def _message_names(files: Mapping[str, FileDescriptorProto]) -> list[str]:
    names: list[str] = []

    def collect(outer: str, messages: Message) -> None:
        for message in messages:
            full = f"{outer}.{message.name}" if outer else message.name
            if not message.options.map_entry:
                names.append(full)
            collect(full, message.nested_type)

    for file in files.values():
        if file.name not in WELL_KNOWN:
            collect(file.package, file.message_type)
    return names


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return (", ".join(names[:_SHOWN_NAMES]) or "none: the set holds no messages") + more
