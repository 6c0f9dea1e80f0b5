"""The rows of the dead-letter table: coordinates of a record, its bytes, and why it did not decode."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

VALUE_BYTES, KEY_BYTES, ERROR = "value_bytes", "key_bytes", "error"
IS_KEPT = "is_kept"
"""True for a dead letter that may come back to the driver, false for one that was too much, null for a row."""
_COORDINATES = ("topic", "partition", "offset", "timestamp", "timestampType")


def letter_columns(decoded: DataFrame) -> dict[str, Column]:
    """The columns of the dead-letter table, made of those of decoded records: coordinates, bytes, error."""
    key = sf.col(KEY_BYTES) if KEY_BYTES in decoded.columns else sf.col("key")
    columns: dict[str, Column] = {name: sf.col(name) for name in _COORDINATES}
    columns |= {"key": key.alias("key"), "value": sf.col(VALUE_BYTES).alias("value")}
    if "headers" in decoded.columns:
        columns["headers"] = sf.col("headers")
    return columns | {ERROR: sf.col(ERROR)}


def dead_letter_columns(decoded: DataFrame) -> DataFrame:
    """The dead letters among decoded records: coordinates, key and value as bytes, headers if there, error.

    The same records always give the same rows: nothing in them says when they were exported.
    """
    return decoded.where(sf.col(ERROR).isNotNull()).select(*letter_columns(decoded).values())
