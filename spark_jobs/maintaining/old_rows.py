"""Rows that are older than the table is to keep them are deleted, whole partitions where it can."""

from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.types import DataType, StructType

from kafscale.errors import SettingError
from kafscale.lake.layout_terms import KAFKA
from spark_jobs.maintaining.sql import MaintainedTable, as_timestamp
from spark_jobs.tables import jvm
from spark_jobs.tables.flat_rows import is_flat
from spark_jobs.tables.layout import quoted, quoted_name

_UNITS: Final = ("year", "month", "day", "hour")
_IN_OTHERS: Final = "timestamp"
_IN_FLAT_TABLES: Final = f"{KAFKA}.timestamp"


def delete_old_rows(table: MaintainedTable, column: str | None, oldest: datetime) -> str | None:
    """Delete the rows whose timestamp is before `oldest`, or before the unit that it is in; None for nothing.

    `column`: None for the timestamp of the records, which flat tables have in `_kafka`; with dots for another field.

    The unit is that of the table's partitions by this column, and a day where it has none: so files are dropped as
    they are, and at most those of one partition are written again, once for each unit.
    """
    schema = table.spark.table(quoted(table.name)).schema
    if column is None:
        column = _IN_FLAT_TABLES if is_flat(schema) else _IN_OTHERS
    found = _type_of(schema, column)
    if found is None or not found.startswith("timestamp"):
        raise SettingError(
            f"--row-ttl-column {column!r} is not legal: it must be a timestamp column of table {table.name}, and it "
            f"is {found or 'not there'}"
        )
    before = _beginning_of(_unit_of(table, column), oldest)
    named = quoted_name(column) if column in schema.names else quoted(column)
    condition = f"{named} < {as_timestamp(int(before.timestamp() * 1000))}"
    if not table.rows(f"SELECT 1 FROM {{t}} WHERE {condition} LIMIT 1"):
        return None
    table.rows(f"DELETE FROM {{t}} WHERE {condition}")
    summary = jvm.as_mapping(jvm.load_table(table.spark, table.name).currentSnapshot().summary())
    gone = int(summary.get("deleted-records", 0)) - int(summary.get("added-records", 0))
    rewritten = int(summary.get("added-data-files", 0))
    files = summary.get("deleted-data-files", "0")
    return f"{gone:,} rows before {before:%Y-%m-%d %H:%M} UTC deleted with {files} files" + (
        f", of which {rewritten} were written again" if rewritten else ""
    )


def _type_of(schema: StructType, column: str) -> str | None:
    """The type of a column, or of a field by its path; None if there is none."""
    found: DataType = schema
    for name in [column] if column in schema.names else column.split("."):
        if not isinstance(found, StructType) or name not in found.names:
            return None
        found = found[name].dataType
    return found.simpleString()


def _unit_of(table: MaintainedTable, column: str) -> str:
    loaded = jvm.load_table(table.spark, table.name)
    source = loaded.schema().findField(column).fieldId()
    found = [
        str(field.transform().toString()) for field in loaded.spec().fields() if field.sourceId() == source
    ]
    return next((one for one in found if one in _UNITS), "day")


def _beginning_of(unit: str, at: datetime) -> datetime:
    at = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if unit == "hour":
        return at
    at -= timedelta(hours=at.hour)
    if unit == "day":
        return at
    return at.replace(day=1) if unit == "month" else at.replace(month=1, day=1)
