"""The rows of the dead-letter table: coordinates of a record, its bytes, and why it did not decode."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

VALUE_BYTES, KEY_BYTES, ERROR = "value_bytes", "key_bytes", "error"
_COORDINATES = ("topic", "partition", "offset", "timestamp", "timestampType")


def dead_letter_columns(decoded: DataFrame) -> DataFrame:
    """The dead letters among decoded records: coordinates, key and value as bytes, headers if there, error.

    The same records always give the same rows: nothing in them says when they were exported.
    """
    key = sf.col(KEY_BYTES) if KEY_BYTES in decoded.columns else sf.col("key")
    columns: list[Column] = [sf.col(name) for name in _COORDINATES]
    columns += [key.alias("key"), sf.col(VALUE_BYTES).alias("value")]
    if "headers" in decoded.columns:
        columns.append(sf.col("headers"))
    return decoded.where(sf.col(ERROR).isNotNull()).select(*columns, sf.col(ERROR))
