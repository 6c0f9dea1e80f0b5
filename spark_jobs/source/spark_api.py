"""Spark's base classes of a reader and of its tasks; stand-ins in Spark 3.5, which has no Python data sources."""

from typing import Any

__all__ = ["DataSourceReader", "InputPartition"]

try:
    from pyspark.sql.datasource import DataSourceReader, InputPartition
except ImportError:

    class InputPartition:  # type: ignore[no-redef]
        """As Spark 4 has it."""

        def __init__(self, value: Any) -> None:
            self.value = value

    class DataSourceReader:  # type: ignore[no-redef]
        """`planned_records` calls what Spark 4 would call."""
