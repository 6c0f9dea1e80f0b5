"""Exactly once: rows become visible in one commit together with the export state, or not at all.

Spark writes the rows as a staged snapshot (write-audit-publish), which no query sees. One Iceberg transaction then
appends the staged files, writes the new export state into the snapshot's summary and a table property, and replaces
only that version of the table whose state is the one that the rows were read for: a late exporter finds another state
and is refused, whatever it believes about its lease. Decision 0022.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from kafscale.lake.commit_errors import CommitUnknownError, StaleExportError
from kafscale.lake.export_state import ExportState, encode_state, find_state, property_of
from spark_jobs.tables import jvm
from spark_jobs.tables.layout import quoted

logger = logging.getLogger(__name__)

WAP_ENABLED: Final = "write.wap.enabled"
_WAP_ID_CONF = "spark.wap.id"
# Iceberg's properties for write-audit-publish; the second keeps the staged files from being deleted with the
# staged snapshot, which expires first.
_STAGED_ID = "wap.id"
_PUBLISHED_ID = "published-wap-id"
_SOURCE_SNAPSHOT = "source-snapshot-id"

_COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"
# The second: a REST catalog's client has it, itself and not a subclass, for an answer that never came.
_COMMIT_UNKNOWN = (
    "org.apache.iceberg.exceptions.CommitStateUnknownException",
    "org.apache.iceberg.exceptions.RESTException",
)
_ATTEMPTS = 5
_RETRY_SEC = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Rows that are written but not visible. `snapshot_id` is None if there were no rows."""

    commit_id: str
    snapshot_id: int | None = None
    row_count: int = 0


def read_state(spark: SparkSession, table_name: str, topic: str) -> ExportState:
    """The export state of the topic in the table. Raises `ExportStateError`."""
    return _state_of(jvm.load_table(spark, table_name).operations().current(), topic)


def _state_of(metadata: Any, topic: str) -> ExportState:
    return find_state(
        topic,
        jvm.ancestor_summaries(metadata),
        jvm.as_mapping(metadata.properties()),
        jvm.all_summaries(metadata),
    )


def stage(rows: DataFrame, table_name: str, commit_id: str, options: Mapping[str, str]) -> Staged:
    """Write the rows of a batch into the table, invisible to queries.

    The table has `WAP_ENABLED`. `options`: as `DataFrameWriterV2.option` takes them. Raises what Spark raises.
    """
    spark = rows.sparkSession
    writer = rows.writeTo(quoted(table_name))
    for name, value in options.items():
        writer = writer.option(name, value)
    spark.conf.set(_WAP_ID_CONF, commit_id)
    try:
        writer.append()
    finally:
        spark.conf.unset(_WAP_ID_CONF)
    return _find_staged(jvm.load_table(spark, table_name), commit_id)


def _find_staged(table: Any, commit_id: str) -> Staged:
    # The newest ones are the last.
    for snapshot in reversed(list(table.snapshots())):
        summary = jvm.as_mapping(snapshot.summary())
        if summary.get(_STAGED_ID) == commit_id:
            return Staged(
                commit_id=commit_id,
                snapshot_id=int(snapshot.snapshotId()),
                row_count=int(summary.get("added-records", "0")),
            )
    return Staged(commit_id=commit_id)


def publish(
    spark: SparkSession,
    table_name: str,
    staged: Staged,
    before: ExportState,
    after: ExportState,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make the staged rows visible and `after` the export state, if that still is `before`.

    `properties` of the table change in the same commit.

    Raises `StaleExportError`, `CommitUnknownError`, and py4j's error for what the catalog refuses.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_SEC * attempt)
        table = jvm.load_table(spark, table_name)
        transaction = table.newTransaction()
        found = _state_of(transaction.startMetadata(), before.topic)
        if found.commit_id == after.commit_id:
            return
        if found.commit_id != before.commit_id:
            raise StaleExportError(table_name, before, found)
        try:
            _commit(spark, table, transaction, staged, after, properties)
        except Exception as problem:
            names = jvm.java_exceptions(problem)
            if not {_COMMIT_FAILED, *_COMMIT_UNKNOWN}.intersection(names):
                raise
            # Failed or unknown: the state of the table decides at the next attempt. Two commits of the same rows
            # cannot both succeed, because each replaces exactly the metadata that it was made from.
            logger.warning("a commit to %s did not succeed at once: %s", table_name, names)
            if attempt == _ATTEMPTS - 1:
                raise CommitUnknownError(table_name, names[0]) from problem
        else:
            return


def _commit(
    spark: SparkSession,
    table: Any,
    transaction: Any,
    staged: Staged,
    after: ExportState,
    properties: Mapping[str, str],
) -> None:
    """Replace the metadata that the transaction began with, and no other."""
    name, text = property_of(after.topic), encode_state(after)
    append = transaction.newAppend()
    if staged.snapshot_id is not None:
        for file in jvm.added_files(spark, table, staged.snapshot_id):
            append.appendFile(file)
        append.set(_SOURCE_SNAPSHOT, str(staged.snapshot_id))
        append.set(_PUBLISHED_ID, staged.commit_id)
    append.set(name, text)
    append.commit()
    update = transaction.updateProperties().set(name, text)
    for key, value in properties.items():
        update = update.set(key, value)
    update.commit()
    # Not `commitTransaction`: it would merge concurrent changes and go on.
    table.operations().commit(transaction.startMetadata(), transaction.currentMetadata())
