"""Hashes of rows as Spark expressions: equal for equal rows, and different when anything in a column is.

Spark's xxhash64 skips nulls and takes no maps: every value is hashed with a flag for null, every array with its
length, and a map as its entries in order.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

PARTITION = "partition"
OFFSET = "offset"
ROW_HASH = "row_hash"


def column_hash_name(place: int) -> str:
    """The name of the hash of the compared column at this place."""
    return f"hash_{place}"


def column_of(name: str) -> Column:
    """The column of exactly that name, whatever characters it has."""
    return sql.col(f"`{name.replace('`', '``')}`")


def hashed(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The rows' coordinates and the hash of each column, in the order given; see `column_hash_name`.

    A column that the rows lack counts as one that is always the same.
    """
    types = {one.name: one.dataType for one in rows.schema}
    hashes = [
        column_hash(column_of(name), types[name]) if name in types else no_column_hash() for name in columns
    ]
    return with_coordinates(rows, hashes)


def with_coordinates(rows: DataFrame, hashes: Sequence[Column]) -> DataFrame:
    """The rows' coordinates, in types that all sides share, and these hashes by their places."""
    return rows.select(
        sql.col(PARTITION).cast("int").alias(PARTITION),
        sql.col(OFFSET).cast("bigint").alias(OFFSET),
        *(one.alias(column_hash_name(place)) for place, one in enumerate(hashes)),
    )


def column_hash(column: Column, data_type: DataType) -> Column:
    """A hash, never null, of the column's value."""
    return sql.xxhash64(_canonical(column, data_type))


def no_column_hash() -> Column:
    """The hash of a missing column."""
    return sql.lit(0).cast("bigint")


def with_row_hash(hashes: DataFrame, column_count: int) -> DataFrame:
    """`hashed` rows with one hash of the whole row, the coordinates included."""
    names = [column_hash_name(place) for place in range(column_count)]
    return hashes.withColumn(ROW_HASH, sql.xxhash64(PARTITION, OFFSET, *names))


def _canonical(column: Column, data_type: DataType) -> Column:
    is_null = column.isNull().alias("is_null")
    if isinstance(data_type, StructType):
        fields = [
            _canonical(column.getField(one.name), one.dataType).alias(f"field_{place}")
            for place, one in enumerate(data_type)
        ]
        return sql.struct(is_null, *fields)
    if isinstance(data_type, ArrayType):
        inner = data_type.elementType
        elements = sql.transform(column, lambda element: _canonical(element, inner))
        return sql.struct(is_null, sql.size(column).alias("length"), elements.alias("elements"))
    if isinstance(data_type, MapType):
        key_type, value_type = data_type.keyType, data_type.valueType
        entries = sql.transform(
            sql.map_entries(column),
            lambda entry: sql.struct(
                _canonical(entry.getField("key"), key_type).alias("key"),
                _canonical(entry.getField("value"), value_type).alias("value"),
            ),
        )
        return sql.struct(is_null, sql.size(column).alias("length"), sql.array_sort(entries).alias("entries"))
    if data_type.typeName() == "variant":  # Spark 3.5 has no such type
        return sql.struct(is_null, sql.to_json(column).alias("value"))
    return sql.struct(is_null, column.alias("value"))
