"""A maintained table in SQL: its rows, its metadata, and Iceberg's procedures for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from spark_jobs.tables.layout import quoted


@dataclass(frozen=True, slots=True)
class MaintainedTable:
    """A table by its full name, in a session."""

    spark: SparkSession
    name: str

    def rows(self, statement: str) -> list[Row]:
        """The rows of a statement, in which `{t}` is the table. They must be few."""
        return self.spark.sql(statement.format(t=quoted(self.name))).collect()

    def metadata(self, kind: str, columns: str) -> list[Row]:
        """Rows of one of Iceberg's metadata tables, such as `snapshots`."""
        return self.rows(f"SELECT {columns} FROM {{t}}.`{kind}`")

    def call(self, procedure: str, **arguments: str) -> Row:
        """The one row that a procedure of Iceberg answers. Arguments are SQL."""
        return self.call_rows(procedure, **arguments).collect()[0]

    def call_rows(self, procedure: str, **arguments: str) -> DataFrame:
        """The rows that a procedure of Iceberg answers. It is done when this returns."""
        catalog, _, _ = self.name.partition(".")
        # The full name: the first part of a shorter one is looked up as a catalog, with a stack trace as a warning.
        all_arguments = {"table": f"'{quoted(self.name)}'", **arguments}
        given = ", ".join(f"{name} => {value}" for name, value in all_arguments.items())
        return self.spark.sql(f"CALL {quoted(catalog)}.system.{procedure}({given})")


def as_map(options: Mapping[str, Any]) -> str:
    """A map in SQL."""
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    return f"map({pairs})"


def as_timestamp(at_ms: int) -> str:
    """A point in time in SQL."""
    return f"TIMESTAMP '{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f} UTC'"
