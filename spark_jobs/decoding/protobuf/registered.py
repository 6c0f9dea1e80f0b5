"""Protobuf schemas of a registry: descriptors where it gives them, else its text, compiled with protoc."""

import base64
import binascii
import functools
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kafscale.errors import SettingError
from kafscale.lake.registry.documents import SchemaDocument, SchemaType
from spark_jobs.decoding.protobuf.descriptors import WELL_KNOWN, index_path, read_descriptor

_MAIN: Final = "schema.proto"
_COMPILE_SEC: Final = 60


def descriptor_set(document: SchemaDocument, what: str) -> bytes:
    """The schema and what it imports, as protoc writes it; the schema itself is the last file.

    Raises `SettingError`, naming `what`.
    """
    if document.schema_type is not SchemaType.PROTOBUF:
        raise SettingError(f"{what}: is of type {document.schema_type}, and values are of format protobuf")
    files: list[FileDescriptorProto] = []
    for name, text in (*document.references.items(), (_MAIN, document.text)):
        file = _serialized(text)
        if file is None:
            known = FileDescriptorSet(file=[*_well_known(), *files]).SerializeToString()
            file = FileDescriptorProto.FromString(_compiled(name, text, known, what))
        file.name = name
        files.append(file)
    content: bytes = FileDescriptorSet(file=files).SerializeToString()
    return content


def _well_known() -> list[FileDescriptorProto]:
    return [FileDescriptorProto.FromString(content) for content in WELL_KNOWN.values()]


def first_message(descriptors: bytes, what: str) -> str:
    """The full name of the schema's first message. Raises `SettingError` if it has none."""
    main = FileDescriptorSet.FromString(descriptors).file[-1]
    if not main.message_type:
        raise SettingError(f"{what}: has no message")
    name = main.message_type[0].name
    return f"{main.package}.{name}" if main.package else name


def message_paths(descriptors: bytes, what: str) -> dict[tuple[int, ...], str]:
    """The schema's messages, nested ones too, by their indexes in Confluent's framing. Raises `SettingError`."""
    main = FileDescriptorSet.FromString(descriptors).file[-1]
    found: dict[tuple[int, ...], str] = {}

    def collect(descriptor: Descriptor) -> None:
        found[index_path(descriptor)] = descriptor.full_name
        for nested in descriptor.nested_types:
            collect(nested)

    for message in main.message_type:
        full = f"{main.package}.{message.name}" if main.package else message.name
        collect(read_descriptor(descriptors, full, what))
    return found


def _serialized(text: str) -> FileDescriptorProto | None:
    """The descriptor that the text is in Base64, None for a text in Protobuf's language."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


@functools.lru_cache(maxsize=1_000)
def _compiled(name: str, text: str, known: bytes, what: str) -> bytes:
    """The descriptor of the file `name`. `known`: what it may import."""
    command = _compiler(what)
    with tempfile.TemporaryDirectory(prefix="kafscale-protoc-") as temporary:
        folder = Path(temporary).resolve()
        target = folder / "source" / name
        if not target.resolve().is_relative_to(folder / "source"):
            raise SettingError(f"{what}: its reference {name[:100]!r} is no path of an import")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        imports, output = folder / "imports", folder / "output"
        imports.write_bytes(known)
        options = [f"--proto_path={folder / 'source'}", f"--descriptor_set_in={imports}"]
        try:
            done = subprocess.run(
                [*command, *options, f"--descriptor_set_out={output}", name],
                capture_output=True,
                timeout=_COMPILE_SEC,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise SettingError(f"{what}: protoc did not end: {type(problem).__name__}") from None
        if done.returncode or not output.exists():
            said = done.stderr.decode(errors="replace").replace(str(folder), "")[-300:].strip()
            raise SettingError(f"{what}: protoc refuses it: {said}")
        found: bytes = FileDescriptorSet.FromString(output.read_bytes()).file[-1].SerializeToString()
        return found


def _compiler(what: str) -> list[str]:
    found = shutil.which("protoc")
    if found is not None:
        return [found]
    if importlib.util.find_spec("grpc_tools") is not None:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    raise SettingError(
        f"{what}: is Protobuf as text, which needs a compiler, and there is none: install protoc or "
        "`pip install grpcio-tools`, or give a descriptor set as --schema-file"
    )
