"""A table at one moment: its rows of a topic and its export state, from the same snapshot."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kafscale.errors import SettingError
from kafscale.lake.export_mode import check_reconcilable
from kafscale.lake.export_state import ExportState, topic_of_property
from kafscale.lake.routes import property_of as routes_property
from spark_jobs.reconciling.row_hash import OFFSET, PARTITION, column_of
from spark_jobs.tables import jvm
from spark_jobs.tables.branches import export_branch, view_of
from spark_jobs.tables.flat_rows import is_flat, unflattened
from spark_jobs.tables.iceberg_table import schema_of_table
from spark_jobs.tables.publish import state_of

TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSide:
    """`rows` has the table's columns, of a flat table those that others have; None for a table without snapshots."""

    name: str
    state: ExportState
    rows: DataFrame | None


def open_table_side(spark: SparkSession, name: str, topic: str) -> TableSide | None:
    """The table as it is now, None if it does not exist.

    Raises `SettingError` for one whose rows have no topic, partition or offset to tell them apart,
    `TableRefusedError`, `ExportStateError`.
    """
    schema = schema_of_table(spark, name)
    if schema is None:
        return None
    metadata = jvm.load_table(spark, name).operations().current()
    properties = jvm.as_mapping(metadata.properties())
    check_reconcilable(name, topic, properties)
    if routes_property(topic) in properties:
        raise SettingError(
            f"table {name} has routes of topic {topic!r} into other tables, and a reconciliation compares one table: "
            "compare counts with SQL, by partition and range of offsets, over all of them"
        )
    branch = export_branch(spark)
    state = state_of(metadata, topic, branch)
    _, snapshot = view_of(metadata, branch)
    if snapshot is None:
        return TableSide(name=name, state=state, rows=None)
    rows = spark.read.option("versionAsOf", str(snapshot.snapshotId())).table(name)
    # A snapshot keeps the columns that were dropped after it.
    rows = rows.select(*(column_of(one.name) for one in schema if one.name in rows.columns))
    if is_flat(rows.schema):
        rows = unflattened(rows)
    for column in (PARTITION, OFFSET):
        if column not in rows.columns:
            raise SettingError(
                f"table {name} has no column {column!r}, and without it no row can be found again in the topic"
            )
    if TOPIC in rows.columns:
        rows = rows.where(sql.col(TOPIC) == topic)
    elif {found for one in properties if (found := topic_of_property(one)) is not None} - {topic}:
        raise SettingError(
            f"table {name} has several topics and no column {TOPIC!r} that tells their rows apart"
        )
    return TableSide(name=name, state=state, rows=rows)
