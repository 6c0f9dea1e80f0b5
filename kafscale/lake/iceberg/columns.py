"""The columns of exported tables: those of the Spark job for values and keys that are bytes or text. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

ERROR: Final = "error"


class TextFormat(StrEnum):
    """The format of keys and values that need no schema."""

    BYTES = "bytes"
    STRING = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """The formats of a topic's keys and values."""

    key: TextFormat = TextFormat.BYTES
    value: TextFormat = TextFormat.BYTES


def row_schema(formats: Formats) -> Schema:
    """The columns of the table; all of them are optional, as Spark makes them."""
    return Schema(*_columns(_type_of(formats.key), _type_of(formats.value)))


def dead_letter_schema() -> Schema:
    """The columns of the dead-letter table: the coordinates come first, the reason last."""
    key, value, topic, partition, offset, timestamp, timestamp_type, headers = _columns(
        BinaryType(), BinaryType()
    )
    error = NestedField(12, ERROR, StringType(), required=False)
    return Schema(topic, partition, offset, timestamp, timestamp_type, key, value, headers, error)


def _type_of(text_format: TextFormat) -> IcebergType:
    return StringType() if text_format is TextFormat.STRING else BinaryType()


def _columns(key: IcebergType, value: IcebergType) -> list[NestedField]:
    header = StructType(
        NestedField(10, "key", StringType(), required=False),
        NestedField(11, "value", BinaryType(), required=False),
    )
    columns: list[tuple[str, IcebergType]] = [
        ("key", key),
        ("value", value),
        ("topic", StringType()),
        ("partition", IntegerType()),
        ("offset", LongType()),
        ("timestamp", TimestamptzType()),
        ("timestampType", IntegerType()),
        ("headers", ListType(9, header, element_required=False)),
    ]
    return [
        NestedField(number, name, of_type, required=False)
        for number, (name, of_type) in enumerate(columns, start=1)
    ]
