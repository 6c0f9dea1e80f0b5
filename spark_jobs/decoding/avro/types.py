"""Avro's types as Spark's, as Spark's own reader of Avro maps them.

Source: https://spark.apache.org/docs/latest/sql-data-sources-avro.html#supported-types-for-avro---spark-sql-conversion
"""

from pyspark.sql import types as st

from kafscale.errors import SettingError
from spark_jobs.decoding.avro.model import (
    Array,
    AvroType,
    Enumeration,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)

_MAX_PRECISION = 38
_PRIMITIVES: dict[str, st.DataType] = {
    "null": st.NullType(),
    "boolean": st.BooleanType(),
    "int": st.IntegerType(),
    "long": st.LongType(),
    "float": st.FloatType(),
    "double": st.DoubleType(),
    "bytes": st.BinaryType(),
    "string": st.StringType(),
}
# Times of day and nanoseconds stay numbers, durations stay bytes: Spark's Iceberg tables have no column for them.
_LOGICAL: dict[tuple[str, str], st.DataType] = {
    ("int", "date"): st.DateType(),
    ("long", "timestamp-millis"): st.TimestampType(),
    ("long", "timestamp-micros"): st.TimestampType(),
    ("long", "local-timestamp-millis"): st.TimestampNTZType(),
    ("long", "local-timestamp-micros"): st.TimestampNTZType(),
}
_WIDENED = {frozenset({"int", "long"}): st.LongType(), frozenset({"float", "double"}): st.DoubleType()}


def spark_type(avro_type: AvroType, source: str) -> st.DataType:
    """The type of the column for values of `avro_type`, every level optional.

    Raises `SettingError`, naming `source`, if Spark cannot store a decimal.
    """
    match avro_type:
        case Primitive() | Fixed() if is_decimal(avro_type):
            return _decimal(avro_type, source)
        case Primitive():
            return _LOGICAL.get((avro_type.kind, avro_type.logical), _PRIMITIVES[avro_type.kind])
        case Fixed():
            return st.StringType() if is_uuid(avro_type) else st.BinaryType()
        case Enumeration():
            return st.StringType()
        case Array():
            return st.ArrayType(spark_type(avro_type.items, source), True)
        case Map():
            return st.MapType(st.StringType(), spark_type(avro_type.values, source), True)
        case Record():
            return st.StructType(
                [
                    st.StructField(field.name, spark_type(field.type, source), True)
                    for field in avro_type.fields
                ]
            )
        case Union():
            return _union(avro_type, source)


def present_branches(union: Union) -> list[AvroType]:
    """The branches that are not null."""
    return [branch for branch in union.branches if branch != Primitive(kind="null")]


def is_one_column(branches: list[AvroType]) -> bool:
    """True if one column stores all branches: there is only one, or they are numbers of one kind."""
    return len(branches) == 1 or _kinds(branches) in _WIDENED


def is_decimal(avro_type: AvroType) -> bool:
    """True if values are decimals. Avro ignores a logical type that does not fit its type."""
    if isinstance(avro_type, Primitive):
        return avro_type.kind == "bytes" and avro_type.logical == "decimal"
    return isinstance(avro_type, Fixed) and avro_type.logical == "decimal"


def is_uuid(avro_type: AvroType) -> bool:
    """True if values are UUIDs of 16 bytes; UUIDs as strings stay as they are written."""
    return isinstance(avro_type, Fixed) and avro_type.logical == "uuid" and avro_type.size == 16


def _decimal(avro_type: Primitive | Fixed, source: str) -> st.DataType:
    if not 1 <= avro_type.precision <= _MAX_PRECISION or not 0 <= avro_type.scale <= avro_type.precision:
        raise SettingError(
            f"{source}: decimal({avro_type.precision}, {avro_type.scale}) cannot be stored; legal is a precision "
            f"of 1 to {_MAX_PRECISION} and a scale of at most the precision"
        )
    return st.DecimalType(avro_type.precision, avro_type.scale)


def _union(union: Union, source: str) -> st.DataType:
    branches = present_branches(union)
    if not branches:
        return st.NullType()
    if len(branches) == 1:
        return spark_type(branches[0], source)
    widened = _WIDENED.get(_kinds(branches))
    if widened is not None:
        return widened
    members = [spark_type(branch, source) for branch in branches]
    return st.StructType([st.StructField(f"member{i}", member, True) for i, member in enumerate(members)])


def _kinds(branches: list[AvroType]) -> frozenset[str]:
    if not all(isinstance(branch, Primitive) and not branch.logical for branch in branches):
        return frozenset()
    return frozenset(branch.kind for branch in branches if isinstance(branch, Primitive))
