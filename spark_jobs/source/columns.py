"""The columns of the source: names, order and types are those of Spark's own Kafka source.

Their Arrow form is `kafscale.arrow.columns`; `headers` is null for a record without any.
"""

from functools import cache

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

CREATE_TIME = 0
LOG_APPEND_TIME = 1
"""The values of `timestampType`, as Kafka's TimestampType has them."""

_SPARK_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)
_SPARK_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


@cache
def spark_schema(include_headers: bool) -> StructType:
    """The schema in Spark. All columns are nullable, as in Spark's own source. Do not modify the result."""
    columns = [*_SPARK_COLUMNS, *((("headers", _SPARK_HEADERS),) if include_headers else ())]
    return StructType([StructField(name, of_type) for name, of_type in columns])
