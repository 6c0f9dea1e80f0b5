"""Gives columns the shape of a table's, nested fields by name. Pure, apart from Spark's expressions."""

from pyspark.sql import Column
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def conformed(column: Column, brought: DataType, wanted: DataType) -> Column:
    """The column as the table's type: fields that it lacks are null, in any order.

    Spark itself casts structs by position and refuses to write those that leave out a field.
    """
    if brought == wanted:
        return column
    if isinstance(brought, StructType) and isinstance(wanted, StructType):
        fields = {one.name: one.dataType for one in brought}
        built = sql.struct(
            *(
                conformed(column.getField(one.name), fields[one.name], one.dataType).alias(one.name)
                if one.name in fields
                else sql.lit(None).cast(one.dataType).alias(one.name)
                for one in wanted
            )
        )
        return sql.when(column.isNotNull(), built)
    if isinstance(brought, ArrayType) and isinstance(wanted, ArrayType):
        inner, outer = brought.elementType, wanted.elementType
        return sql.transform(column, lambda element: conformed(element, inner, outer))
    if isinstance(brought, MapType) and isinstance(wanted, MapType):
        return _conformed_map(column, brought, wanted)
    return column.cast(wanted)


def _conformed_map(column: Column, brought: MapType, wanted: MapType) -> Column:
    entries = sql.transform(
        sql.map_entries(column),
        lambda entry: sql.struct(
            conformed(entry.getField("key"), brought.keyType, wanted.keyType).alias("key"),
            conformed(entry.getField("value"), brought.valueType, wanted.valueType).alias("value"),
        ),
    )
    return sql.map_from_entries(entries)
