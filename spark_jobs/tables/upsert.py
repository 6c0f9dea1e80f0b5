"""Exactly once, with one row for each key: a batch is merged into the table, and published with the export state.

The batch's rows were staged as for an append (`publish.py`), and are never published as they are. `MERGE INTO` makes
a second staged snapshot of them, whose summary has the new export state. Iceberg's main branch then moves to it in
one commit, which also writes the state into the table property, if state and head of the table still are those that
the merge was made from. If the head has moved, the batch is merged again. Decision 0090.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from kafscale.errors import KafscaleError, SettingError
from kafscale.lake.commit_errors import CommitUnknownError, StaleExportError, TableRefusedError
from kafscale.lake.export_mode import ExportMode
from kafscale.lake.export_mode import property_of as mode_property
from kafscale.lake.export_state import MAIN_BRANCH, ExportState, encode_state, property_of
from kafscale.lake.layout_terms import KAFKA
from spark_jobs.tables import jvm
from spark_jobs.tables.branches import WAP_BRANCH, export_branch
from spark_jobs.tables.flat_rows import TOMBSTONE, is_flat
from spark_jobs.tables.iceberg_table import schema_of_table
from spark_jobs.tables.layout import quoted, quoted_name
from spark_jobs.tables.publish import (
    COMMIT_FAILED,
    COMMIT_UNKNOWN,
    WAP_ID_CONF,
    Staged,
    StagedRowsExpiredError,
    delete_files,
    find_staged,
    publish,
    state_of,
    states_to_keep,
)

logger = logging.getLogger(__name__)

MERGE_MODE: Final = {"write.merge.mode": "merge-on-read"}
"""Properties of a new table: a batch writes its own rows and where the old ones are, and no old file again."""

_SNAPSHOT_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."
HAS_MERGE_INTO: Final = hasattr(DataFrame, "mergeInto")
"""Spark 3.5 knows the statement only. Spark 4.1 cannot plan that for a view if the merge is to copy on write."""
_CONFLICT: Final = "org.apache.iceberg.exceptions.ValidationException"
_NEEDED: Final = ("topic", "partition", "offset", "timestamp", "key")
_VIEW: Final = "kafscale_upserted"
_DELETES: Final = "kafscale_deletes"
_ATTEMPTS: Final = 5
_RETRY_SEC: Final = 0.5


class TableBusyError(KafscaleError):
    """Other writers have changed the table between each merge and its commit; nothing of the batch is visible."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"other writers changed {table} {_ATTEMPTS} times, each time while a batch was merged into it: nothing "
            "of the batch is visible; run the export again when they are done"
        )


def check_upsert(spark: SparkSession) -> None:
    """Raise `SettingError` if the session writes to another branch, on which no merge can be staged."""
    if export_branch(spark) != MAIN_BRANCH:
        raise SettingError(
            f"--conf {WAP_BRANCH} is not legal with --mode upsert, which writes to the main branch"
        )


def publish_merged(
    spark: SparkSession, table_name: str, staged: Staged, before: ExportState, after: ExportState
) -> None:
    """Merge the staged rows into the table and make `after` its export state, if that still is `before`.

    Raises `StaleExportError`, `CommitUnknownError`, `StagedRowsExpiredError`, `TableRefusedError`, Spark's errors,
    and py4j's error for what the catalog refuses.
    """
    mode = {mode_property(after.topic): ExportMode.UPSERT.value}
    if staged.snapshot_id is None:
        publish(spark, table_name, staged, before, after, mode)
        return
    made: list[_Merged] = []
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_SEC * attempt)
        if _is_published(spark, table_name, before, after):
            return
        try:
            made.append(_merge(spark, table_name, staged, after, attempt))
            if _commit(spark, table_name, staged.snapshot_id, made, before, after, mode):
                return
            logger.warning("table %s has changed since the batch was merged into it: once more", table_name)
        except Exception as problem:
            names = jvm.java_exceptions(problem)
            if not {COMMIT_FAILED, _CONFLICT, *COMMIT_UNKNOWN}.intersection(names):
                raise
            logger.warning("a merge into %s did not succeed at once: %s", table_name, names)
            if attempt == _ATTEMPTS - 1:
                raise CommitUnknownError(table_name, names[0]) from problem
    raise TableBusyError(table_name)


def _is_published(spark: SparkSession, table_name: str, before: ExportState, after: ExportState) -> bool:
    """Raises `StaleExportError` if the table has neither of the states."""
    return _has_state(table_name, jvm.load_table(spark, table_name).operations().current(), before, after)


def _has_state(table_name: str, metadata: Any, before: ExportState, after: ExportState) -> bool:
    found = state_of(metadata, before.topic)
    if found.commit_id not in (before.commit_id, after.commit_id):
        raise StaleExportError(table_name, before, found)
    return found.commit_id == after.commit_id


@dataclass(frozen=True, slots=True)
class _Merged:
    """A staged snapshot: its id, and that of the table's head (None: an empty table) which Spark merged into."""

    snapshot_id: int
    head: int | None


def _id_of(snapshot: Any) -> int | None:
    return None if snapshot is None else int(snapshot.snapshotId())


def _head(metadata: Any) -> int | None:
    return _id_of(metadata.currentSnapshot())


def _merge(spark: SparkSession, table_name: str, staged: Staged, after: ExportState, attempt: int) -> _Merged:
    """Stage a snapshot with the batch merged into the table as it is now."""
    spark.catalog.refreshTable(quoted(table_name))
    schema = schema_of_table(spark, table_name)
    assert schema is not None, "rows are staged in it"
    table = jvm.load_table(spark, table_name)
    head = _head(table.operations().current())
    staged_as = f"{staged.commit_id}-merged-{attempt}"
    batch = newest_of_keys(_staged_rows(spark, table, table_name, staged))
    text = encode_state(after)
    with _confs(spark, {WAP_ID_CONF: staged_as, f"{_SNAPSHOT_PROPERTY}{property_of(after.topic)}": text}):
        _merge_into(spark, table_name, schema, batch)
    table.refresh()
    merged = find_staged(table, staged_as).snapshot_id
    if merged is None:
        raise StagedRowsExpiredError(table_name)
    return _Merged(merged, head)


@contextmanager
def _confs(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(name)


def _staged_rows(spark: SparkSession, table: Any, table_name: str, staged: Staged) -> DataFrame:
    """The rows of the batch, and none of those that were in the table before."""
    assert staged.snapshot_id is not None, "there are rows"
    snapshot = table.snapshot(staged.snapshot_id)
    if snapshot is None:
        raise StagedRowsExpiredError(table_name)
    parent = snapshot.parentId()
    reader = spark.read
    if parent is None:
        reader = reader.option("versionAsOf", str(staged.snapshot_id))
    else:
        reader = reader.option("start-snapshot-id", str(parent))
        reader = reader.option("end-snapshot-id", str(staged.snapshot_id))
    return reader.table(quoted(table_name))


def newest_of_keys(rows: DataFrame) -> DataFrame:
    """Of each key of each topic the newest row, and a column that is true for one that deletes.

    A key that is in several partitions, because some were added, has its newest record there by timestamp.
    """
    place = f"{KAFKA}." if is_flat(rows.schema) else ""
    topic, partition, offset, timestamp, key = (sql.col(f"{place}{name}") for name in _NEEDED)
    whole = sql.struct(*(sql.col(quoted_name(name)) for name in rows.columns))
    in_partitions = rows.groupBy(topic.alias("t"), key.alias("k"), partition.alias("p")).agg(
        sql.max_by(whole, offset).alias("r"), sql.max_by(timestamp, offset).alias("at")
    )
    newest = (
        in_partitions.groupBy("t", "k").agg(sql.max_by("r", sql.struct("at", "p")).alias("r")).select("r.*")
    )
    return newest.withColumn(_DELETES, _is_tombstone(rows.schema))


def _is_tombstone(schema: StructType) -> Column:
    if is_flat(schema):
        return sql.col(f"{KAFKA}.{TOMBSTONE}")
    # While no value has been seen whose type is known there is no column for any.
    return sql.col("value").isNull() if "value" in schema.names else sql.lit(True)


def _merge_into(spark: SparkSession, table_name: str, schema: StructType, batch: DataFrame) -> None:
    """Raises `TableRefusedError` for a table that lacks a column, and what Spark raises."""
    place = _checked_place(table_name, schema)
    names = [quoted_name(name) for name in schema.names]
    deletes, target = f"batch.{_DELETES}", quoted(table_name)

    def same(rows: str) -> str:
        return " AND ".join(f"{rows}.{place}{name} = batch.{place}{name}" for name in ("topic", "key"))

    if HAS_MERGE_INTO:
        values = {name: sql.col(f"batch.{name}") for name in names}
        merge = batch.alias("batch").mergeInto(target, sql.expr(same(target)))
        merge = merge.whenMatched(sql.expr(deletes)).delete().whenMatched().update(values)
        merge.whenNotMatched(sql.expr(f"NOT {deletes}")).insert(values).merge()
        return
    batch.createOrReplaceTempView(_VIEW)
    try:
        spark.sql(
            f"MERGE INTO {target} AS rows USING {_VIEW} AS batch ON {same('rows')} "
            f"WHEN MATCHED AND {deletes} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f'rows.{name} = batch.{name}' for name in names)} "
            f"WHEN NOT MATCHED AND NOT {deletes} THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f'batch.{name}' for name in names)})"
        )
    finally:
        spark.catalog.dropTempView(_VIEW)


def _checked_place(table_name: str, schema: StructType) -> str:
    """The text before the names of what Kafka knows of a record."""
    kafka = schema[KAFKA].dataType if is_flat(schema) else schema
    assert isinstance(kafka, StructType)
    for name in _NEEDED:
        if name not in kafka.names:
            raise TableRefusedError(
                f"table {table_name} has no column {name!r}, and without it no row can be found again by its key"
            )
    return f"{quoted_name(KAFKA)}." if is_flat(schema) else ""


def _commit(
    spark: SparkSession,
    table_name: str,
    staged_id: int,
    made: Sequence[_Merged],
    before: ExportState,
    after: ExportState,
    properties: Mapping[str, str],
) -> bool:
    """Move the main branch to the last of the merged snapshots; False if it was made from another head."""
    last = made[-1]
    table = jvm.load_table(spark, table_name)
    transaction = table.newTransaction()
    start = transaction.startMetadata()
    if _has_state(table_name, start, before, after):
        return True
    merged = start.snapshot(last.snapshot_id)
    if merged is None:
        raise StagedRowsExpiredError(table_name)
    parent = merged.parentId()
    # The parent is the head when the merge was staged, which may be another one than Spark read.
    if not (None if parent is None else int(parent)) == last.head == _head(start):
        return False
    text = encode_state(after)
    if jvm.as_mapping(merged.summary()).get(property_of(after.topic)) != text:
        raise TableRefusedError(
            f"the merge into table {table_name} does not have the export state: Iceberg is too old"
        )
    transaction.manageSnapshots().setCurrentSnapshot(last.snapshot_id).commit()
    update = transaction.updateProperties()
    for name, value in {**states_to_keep(start), property_of(after.topic): text, **properties}.items():
        update.set(name, value)
    update.commit()
    changed = transaction.currentMetadata()
    leftover: list[str] = []
    for snapshot_id in (staged_id, *(one.snapshot_id for one in made[:-1])):
        if table.snapshot(snapshot_id) is not None:
            leftover += jvm.own_files(spark, table, snapshot_id)
            changed = jvm.without_snapshot(spark, changed, snapshot_id)
    # Not `commitTransaction`: it would merge concurrent changes and go on.
    table.operations().commit(start, changed)
    delete_files(table, leftover)
    return True
