"""Flat tables: the fields of values are columns, and what Kafka knows of a record is in one column, `_kafka`.

And back: the rows of a flat table with the columns that other tables have.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType, DataType, NullType, StructType

from kafscale.errors import SettingError
from kafscale.lake.commit_errors import TableRefusedError
from kafscale.lake.layout_terms import KAFKA
from spark_jobs.decoding.types import folded
from spark_jobs.tables.layout import quoted_name

TOMBSTONE: Final = "tombstone"
"""In `_kafka`: true if the record's value is null, so that it differs from one whose fields all are."""

_VALUE: Final = "value"
_COORDINATES: Final = frozenset({"topic", "partition", "offset"})

RESERVED: Final = frozenset(
    {
        KAFKA,
        # Iceberg's own columns: a table with another column of the name cannot be read.
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
        "_row_id",
        "_last_updated_sequence_number",
    }
)
"""Names that no column of a flat table can have."""


def is_flat(schema: StructType) -> bool:
    """True for the columns of a flat table."""
    return KAFKA in schema.names and _is_kafka(schema[KAFKA].dataType) and "offset" not in schema.names


def _is_kafka(of: DataType) -> bool:
    return isinstance(of, StructType) and set(of.names) >= _COORDINATES


def check_shape(name: str, schema: StructType | None, *, flattens: bool) -> None:
    """Raise `TableRefusedError` for a table that an export of the other shape has made."""
    if schema is None or is_flat(schema) == flattens:
        return
    if flattens:
        raise TableRefusedError(
            f"table {name} is not flat: it has no column {KAFKA!r} with the coordinates of records; export without "
            "--flatten, or into a new table"
        )
    raise TableRefusedError(f"table {name} is flat: export with --flatten, as before, or into a new table")


def value_type_of(schema: StructType) -> DataType | None:
    """The type of the values that the table's columns come from, None if there are none."""
    if not is_flat(schema):
        return schema[_VALUE].dataType if _VALUE in schema.names else None
    fields = [one for one in schema.fields if one.name != KAFKA]
    return StructType(fields) if fields else None


def without_reserved(value_type: DataType) -> DataType:
    """A type that was inferred, without fields that cannot be columns: their values are dead letters."""
    if not isinstance(value_type, StructType):
        return value_type
    return StructType([one for one in value_type.fields if folded(one.name) not in RESERVED])


def flattened(rows: DataFrame) -> DataFrame:
    """The rows with the values' fields as columns, and `_kafka` behind them.

    Raises `SettingError` for values without fields, and for a field that cannot be a column.
    """
    value_type = rows.schema[_VALUE].dataType
    kafka = [sql.col(one) for one in rows.columns if one != _VALUE]
    if not isinstance(value_type, StructType | NullType):
        raise SettingError(
            f"--flatten is not legal for values of type {value_type.simpleString()[:100]}: they have no fields that "
            "could be columns"
        )
    fields = value_type.names if isinstance(value_type, StructType) else []
    for name in fields:
        if folded(name) in RESERVED:
            raise SettingError(
                f"--flatten is not legal for values with a field {name!r}: the table has a column of that name "
                "already; names that no field may have are " + ", ".join(sorted(RESERVED))
            )
    value = sql.col(_VALUE)
    return rows.select(
        *(value.getField(name).alias(name) for name in fields),
        sql.struct(*kafka, value.isNull().alias(TOMBSTONE)).alias(KAFKA),
    )


def unflattened(rows: DataFrame) -> DataFrame:
    """The rows of a flat table with the columns of other tables: the inverse of `flattened`."""
    kafka = rows.schema[KAFKA].dataType
    assert isinstance(kafka, StructType), "the table is flat"
    columns: list[Column] = [
        sql.col(KAFKA).getField(name).alias(name) for name in kafka.names if name != TOMBSTONE
    ]
    fields = [sql.col(quoted_name(name)) for name in rows.columns if name != KAFKA]
    if fields:
        value = sql.struct(*fields)
        if TOMBSTONE in kafka.names and isinstance(kafka[TOMBSTONE].dataType, BooleanType):
            value = sql.when(~sql.coalesce(sql.col(KAFKA).getField(TOMBSTONE), sql.lit(False)), value)
        columns.append(value.alias(_VALUE))
    return rows.select(*columns)
