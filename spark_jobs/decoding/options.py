"""Options for a topic's values and keys: their format, schema and framing."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_jobs.decoding.schema_source import SchemaSource


class ValueFormat(StrEnum):
    """The format of the bytes of a value."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    JSON_VARIANT = "json-variant"
    AVRO = "avro"
    PROTOBUF = "protobuf"


WITH_FIELDS: Final = frozenset({ValueFormat.JSON, ValueFormat.AVRO, ValueFormat.PROTOBUF})
"""The formats whose values have fields, each with a type."""


class KeyFormat(StrEnum):
    """The format of the bytes of a key."""

    BYTES = "bytes"
    STRING = "string"


class Framing(StrEnum):
    """Framing of values: Confluent's magic byte 0 and a 4-byte schema id, or none."""

    NONE = "none"
    CONFLUENT = "confluent"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """The options of a decoder. `open_decoder` refuses those that do not belong to the format.

    `schema` is text: Spark DDL or Spark's JSON for JSON values, Avro's JSON for Avro values. `schema_files` are
    paths: for JSON one file with such text; for Avro the schema files, named types before their use and the
    schema to read with last, and writers' schemas as `ID=PATH`; for Protobuf one descriptor set. `message` is
    the full name of the Protobuf message. `max_fields` bounds the fields that inferred JSON may have in all.
    `source` has the schemas of a registry, for one batch. `requires_key`: a record without a key is a
    dead letter.
    """

    format: ValueFormat = ValueFormat.BYTES
    key_format: KeyFormat = KeyFormat.BYTES
    schema: str | None = None
    schema_files: tuple[str, ...] = ()
    message: str | None = None
    framing: Framing = Framing.AUTO
    max_fields: int = 1000
    source: SchemaSource | None = None
    requires_key: bool = False
