"""Avro schemas from files: the schema to read with, and those that writers used, by their id."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from kafscale.errors import SettingError
from kafscale.lake.registry.documents import SchemaDocument, SchemaType
from spark_jobs.decoding.avro.model import AvroType, model_of
from spark_jobs.decoding.avro.resolution import reader_of
from spark_jobs.decoding.avro.types import spark_type
from spark_jobs.decoding.schema_files import read_text
from spark_jobs.decoding.schema_source import SchemaSource
from spark_jobs.decoding.types import require_usable

_WRITER = re.compile(r"([0-9]{1,10})=(.+)", re.DOTALL)
_MAX_ID = (1 << 31) - 1
_REFUSALS = (
    SchemaParseException,
    UnknownType,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    RecursionError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchemas:
    """`reader` defines the columns; `writers` are the schemas of framed values, by id.

    Without writers, every value was written with the reader's schema, unless they are `registered`. `refused`: why
    values of these ids cannot be read.
    """

    reader: AvroType
    writers: Mapping[int, AvroType] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    registered: bool = False


def read_schemas(text: str | None, files: Sequence[str], source: SchemaSource | None = None) -> AvroSchemas:
    """The schemas in `text` and `files`, and those of a registry; see `ValueOptions`. Raises `SettingError`."""
    named: dict[str, Any] = {}
    writers: dict[int, AvroType] = {}
    reader: tuple[AvroType, str] | None = None
    if text is None and source is not None and source.reader is not None:
        reader = _parse_document(source.reader, source.what), source.what
    for path in files:
        writer = _WRITER.fullmatch(path)
        if writer is None:
            file = f"schema file {path!r}"
            reader = _parse(read_text(path), file, named), file
        else:
            writers[_schema_id(writer[1], path, writers)] = _read_writer(writer[2])
    if text is not None:
        reader = _parse(text, "value schema", named), "value schema"
    if reader is None:
        raise SettingError(
            "value format avro: has no schema to read with; legal is a schema as text, or a file that is named "
            "without an id"
        )
    found, what = reader
    require_usable(spark_type(found, what), what)
    for number, writer_type in writers.items():
        reader_of(writer_type, found, f"the schema of id {number} cannot be read with {what}")
    if source is None:
        return AvroSchemas(reader=found, writers=writers)
    return _with_registered(AvroSchemas(reader=found, writers=writers, registered=True), source)


def _with_registered(schemas: AvroSchemas, source: SchemaSource) -> AvroSchemas:
    """With the registry's writers beside those of files. One that cannot be read is a problem of its values."""
    writers, refused = dict(schemas.writers), {}
    for number, document in source.writers.items():
        if number in writers:
            continue
        what = f"has the schema id {number}, whose schema"
        try:
            found = _parse_document(document, what)
            reader_of(found, schemas.reader, f"{what} cannot be read with the reader's")
            writers[number] = found
        except SettingError as problem:
            refused[number] = str(problem)
    return replace(schemas, writers=writers, refused=refused)


def _parse_document(document: SchemaDocument, what: str) -> AvroType:
    if document.schema_type is not SchemaType.AVRO:
        raise SettingError(f"{what}: is of type {document.schema_type}, and values are of format avro")
    named: dict[str, Any] = {}
    for name, text in document.references.items():
        _parse(text, f"{what}, reference {name[:100]!r}", named)
    return _parse(document.text, what, named)


def is_writers_file(option: str) -> bool:
    """True for `ID=FILE`: a writer's schema, which says nothing of the columns."""
    return _WRITER.fullmatch(option) is not None


def type_name(text: str) -> str | None:
    """The full name of the type that a schema describes, None for one without a name or no schema."""
    try:
        plain = json.loads(text)
        name = plain["name"]
        space = plain.get("namespace")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(name, str):
        return None
    return f"{space}.{name}" if isinstance(space, str) and space and "." not in name else name


def _read_writer(path: str) -> AvroType:
    return _parse(read_text(path), f"schema file {path!r}", {})


def _schema_id(digits: str, option: str, writers: Mapping[int, AvroType]) -> int:
    number = int(digits)
    if number > _MAX_ID:
        raise SettingError(f"schema file {option!r}: id {number} is too large; legal is 0 to {_MAX_ID}")
    if number in writers:
        raise SettingError(f"schema file {option!r}: id {number} has a schema already")
    return number


def _parse(text: str, source: str, named: dict[str, Any]) -> AvroType:
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingError(
            f"{source}: line {error.lineno}, column {error.colno}: {error.msg}; legal is an Avro schema in JSON"
        ) from None
    try:
        parsed = parse_schema(plain, named_schemas=named)
        return model_of(parsed, named, source)
    except UnknownType as error:
        raise SettingError(
            f"{source}: the type {error.name!r} is not known; legal are Avro's types, and named types of this "
            "file or of files before it"
        ) from None
    except _REFUSALS as error:
        raise SettingError(f"{source}: is no Avro schema: {type(error).__name__}: {error}") from None
