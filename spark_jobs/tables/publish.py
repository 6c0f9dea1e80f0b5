"""Exactly once: rows become visible in one commit together with the export state, or not at all.

Spark writes the rows as a staged snapshot (write-audit-publish), which no query sees. One Iceberg transaction then
appends the staged files, writes the new export state into the snapshot's summary and a table property, and replaces
only that version of the table whose state is the one that the rows were read for: a late exporter finds another state
and is refused, whatever it believes about its lease. The staged snapshot goes with the same commit. Decisions 0022
and 0085.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from kafscale.errors import KafscaleError
from kafscale.lake.commit_errors import CommitUnknownError, StaleExportError
from kafscale.lake.export_state import (
    MAIN_BRANCH,
    PREFIX,
    ExportState,
    encode_state,
    find_state,
    property_of,
    topic_of_property,
)
from spark_jobs.tables import jvm
from spark_jobs.tables.branches import export_branch, on_main, view_of
from spark_jobs.tables.expiry import list_of
from spark_jobs.tables.layout import quoted

logger = logging.getLogger(__name__)

WAP_ENABLED: Final = "write.wap.enabled"
WAP_ID_CONF: Final = "spark.wap.id"
# Iceberg's properties for write-audit-publish. Not its `source-snapshot-id`: the staged snapshot goes with the
# commit, and Iceberg's expiry leaves the files of a snapshot that names another.
_STAGED_ID = "wap.id"
_PUBLISHED_ID = "published-wap-id"

COMMIT_FAILED: Final = "org.apache.iceberg.exceptions.CommitFailedException"
# The second: a REST catalog's client has it, itself and not a subclass, for an answer that never came.
COMMIT_UNKNOWN: Final = (
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


class StagedRowsExpiredError(KafscaleError):
    """The staged rows were removed before they were published; none of them is visible."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the rows of this batch were staged in {table}, and maintenance of the table expired them before they "
            "were published: run the export again, and let maintenance keep snapshots for longer than a batch takes"
        )


def read_state(spark: SparkSession, table_name: str, topic: str) -> ExportState:
    """The export state of the topic in the table, in the session's branch. Raises `ExportStateError`."""
    return state_of(jvm.load_table(spark, table_name).operations().current(), topic, export_branch(spark))


def state_of(metadata: Any, topic: str, branch: str = MAIN_BRANCH) -> ExportState:
    """The export state of the topic in a branch of this version of a table. Raises `ExportStateError`."""
    viewed, snapshot = view_of(metadata, branch)
    return find_state(
        topic,
        jvm.ancestor_summaries(metadata, snapshot),
        jvm.as_mapping(metadata.properties()),
        jvm.all_summaries(metadata),
        viewed,
    )


def stage(rows: DataFrame, table_name: str, commit_id: str, options: Mapping[str, str]) -> Staged:
    """Write the rows of a batch into the table, invisible to queries.

    The table has `WAP_ENABLED`. `options`: as `DataFrameWriterV2.option` takes them. Raises what Spark raises.
    """
    spark = rows.sparkSession
    writer = rows.writeTo(quoted(table_name))
    for name, value in options.items():
        writer = writer.option(name, value)
    with on_main(spark):
        spark.conf.set(WAP_ID_CONF, commit_id)
        try:
            writer.append()
        finally:
            spark.conf.unset(WAP_ID_CONF)
    return find_staged(jvm.load_table(spark, table_name), commit_id)


def find_staged(table: Any, commit_id: str) -> Staged:
    """The rows that were staged in the table under this id, none if there were none."""
    # The newest ones are the last.
    for snapshot in reversed(list_of(table.snapshots())):
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
    *,
    summary: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make the staged rows visible and `after` the export state, if that still is `before`.

    `properties` of the table change in the same commit; `summary`: of the snapshot, besides the state.

    Both in the session's branch. Raises `StaleExportError`, `CommitUnknownError`, `StagedRowsExpiredError`, and
    py4j's error for what the catalog refuses.
    """
    branch = export_branch(spark)
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_SEC * attempt)
        table = jvm.load_table(spark, table_name)
        transaction = table.newTransaction()
        found = state_of(transaction.startMetadata(), before.topic, branch)
        if found.commit_id == after.commit_id:
            return
        if found.commit_id != before.commit_id:
            raise StaleExportError(table_name, before, found)
        if staged.snapshot_id is not None and table.snapshot(staged.snapshot_id) is None:
            raise StagedRowsExpiredError(table_name)
        try:
            leftover = _leftover(table, staged)
            _commit(spark, table, transaction, staged, after, properties, summary)
        except Exception as problem:
            names = jvm.java_exceptions(problem)
            if not {COMMIT_FAILED, *COMMIT_UNKNOWN}.intersection(names):
                raise
            # Failed or unknown: the state of the table decides at the next attempt. Two commits of the same rows
            # cannot both succeed, because each replaces exactly the metadata that it was made from.
            logger.warning("a commit to %s did not succeed at once: %s", table_name, names)
            if attempt == _ATTEMPTS - 1:
                raise CommitUnknownError(table_name, names[0]) from problem
        else:
            delete_files(table, leftover)
            return


def _leftover(table: Any, staged: Staged) -> list[str]:
    """The files of metadata that only the staged snapshot has. Its data files are those that are published."""
    return [] if staged.snapshot_id is None else jvm.own_metadata_files(table, staged.snapshot_id)


def _commit(
    spark: SparkSession,
    table: Any,
    transaction: Any,
    staged: Staged,
    after: ExportState,
    properties: Mapping[str, str],
    summary: Mapping[str, str],
) -> None:
    """Replace the metadata that the transaction began with, and no other."""
    branch = export_branch(spark)
    text = encode_state(after)
    append = transaction.newAppend()
    if branch != MAIN_BRANCH:
        append.toBranch(branch)
    if staged.snapshot_id is not None:
        for file in jvm.added_files(spark, table, staged.snapshot_id):
            append.appendFile(file)
        append.set(_PUBLISHED_ID, staged.commit_id)
    for name, value in {**summary, property_of(after.topic): text}.items():
        append.set(name, value)
    append.commit()
    update = transaction.updateProperties()
    for name, value in {
        **states_to_keep(transaction.startMetadata()),
        property_of(after.topic, branch): text,
        **properties,
    }.items():
        update.set(name, value)
    update.commit()
    changed = transaction.currentMetadata()
    if staged.snapshot_id is not None:
        changed = jvm.without_snapshot(spark, changed, staged.snapshot_id)
    # Not `commitTransaction`: it would merge concurrent changes and go on.
    table.operations().commit(transaction.startMetadata(), changed)


def states_to_keep(metadata: Any) -> dict[str, str]:
    """The states that only a snapshot of the main branch says, as properties, which outlive snapshots.

    They came from another branch to which main was fast-forwarded.
    """
    properties = jvm.as_mapping(metadata.properties())
    topics = {topic for name in properties if (topic := topic_of_property(name)) is not None}
    names = {property_of(topic) for topic in topics}
    if not any(name.startswith(PREFIX) for name in properties.keys() - names):
        return {}  # no branch was ever exported to
    found: dict[str, str] = {}
    for summary in jvm.ancestor_summaries(metadata, metadata.currentSnapshot()):
        found |= {name: summary[name] for name in names - found.keys() if name in summary}
        if len(found) == len(names):
            break
    return {name: text for name, text in found.items() if properties.get(name) != text}


def keep_states(spark: SparkSession, table_name: str) -> None:
    """Write `states_to_keep` before the snapshots that say them expire. Raises py4j's error if it is refused."""
    table = jvm.load_table(spark, table_name)
    transaction = table.newTransaction()
    wanted = states_to_keep(transaction.startMetadata())
    if not wanted:
        return
    properties = transaction.updateProperties()
    for name, value in wanted.items():
        properties.set(name, value)
    properties.commit()
    table.operations().commit(transaction.startMetadata(), transaction.currentMetadata())


def delete_files(table: Any, paths: list[str]) -> None:
    """Best-effort: what is left is found by the maintenance of tables."""
    for path in paths:
        try:
            table.io().deleteFile(path)
        except Py4JError as problem:
            logger.warning(
                "could not delete %s, which no snapshot has: %s", path, jvm.java_exceptions(problem)
            )
