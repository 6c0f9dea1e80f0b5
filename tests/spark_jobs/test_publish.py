"""Rows become visible once, with what the table then says, or not at all; stale exporters are refused."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kafscale.lake.commit_errors import StaleExportError
from kafscale.lake.export_state import ExportState, ExportStateError, decode_state, property_of
from spark_jobs.tables import jvm
from spark_jobs.tables import publish as publishing
from spark_jobs.tables.iceberg_table import ensure_table
from spark_jobs.tables.publish import Staged, publish, read_state, stage
from spark_jobs.tables.table_options import TableOptions
from tests.spark_jobs.support.catalogs import IcebergCatalog

TOPIC = "orders"
COLUMNS = StructType([StructField("offset", LongType()), StructField("value", StringType())])


@pytest.fixture
def table(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: Callable[[IcebergCatalog], str]
) -> str:
    name = new_table(local_catalog)
    ensure_table(spark, name, COLUMNS, TableOptions())
    return name


def rows_of(spark: SparkSession, first: int, following: int) -> DataFrame:
    return spark.range(first, following, 1, 1).selectExpr("id AS offset", "concat('v', id) AS value")


def offsets_in(spark: SparkSession, table: str) -> list[int]:
    spark.catalog.refreshTable(table)
    return sorted(row.offset for row in spark.table(table).collect())


def brought(before: ExportState, first: int, following: int) -> ExportState:
    return before.after(
        commit_id=uuid.uuid4().hex,
        topic_id="t",
        starts={0: 0},
        exported={0: ((first, following),)},
        gaps={},
    )


def commit(spark: SparkSession, table: str, before: ExportState, first: int, following: int) -> ExportState:
    after = brought(before, first, following)
    staged = stage(rows_of(spark, first, following), table, after.commit_id, {})
    assert staged.row_count == following - first
    publish(spark, table, staged, before, after)
    return after


def test_staged_rows_are_invisible_until_they_are_published(spark: SparkSession, table: str) -> None:
    nothing = read_state(spark, table, TOPIC)
    assert nothing == ExportState(topic=TOPIC)
    after = brought(nothing, 0, 3)
    staged = stage(rows_of(spark, 0, 3), table, after.commit_id, {})
    assert offsets_in(spark, table) == []
    assert read_state(spark, table, TOPIC) == nothing
    publish(spark, table, staged, nothing, after)
    assert offsets_in(spark, table) == [0, 1, 2]
    assert read_state(spark, table, TOPIC) == after
    current = jvm.as_mapping(jvm.load_table(spark, table).currentSnapshot().summary())
    assert decode_state(TOPIC, current[property_of(TOPIC)]) == after
    assert current["added-records"] == "3"


def test_of_two_exporters_from_the_same_state_one_is_refused(spark: SparkSession, table: str) -> None:
    nothing = read_state(spark, table, TOPIC)
    late = brought(nothing, 0, 2)
    staged = stage(rows_of(spark, 0, 2), table, late.commit_id, {})
    commit(spark, table, nothing, 0, 3)
    with pytest.raises(StaleExportError, match="nothing of this batch is visible"):
        publish(spark, table, staged, nothing, late)
    assert offsets_in(spark, table) == [0, 1, 2]


def test_a_concurrent_commit_is_refused_by_the_table(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look before the commit is not what keeps two apart."""
    nothing = read_state(spark, table, TOPIC)
    late = brought(nothing, 0, 2)
    staged = stage(rows_of(spark, 0, 2), table, late.commit_id, {})
    real = publishing._commit
    done: list[bool] = []

    def overtaken(*arguments: Any) -> None:
        if not done:
            done.append(True)
            commit(spark, table, nothing, 0, 3)
        real(*arguments)

    monkeypatch.setattr(publishing, "_commit", overtaken)
    with pytest.raises(StaleExportError):
        publish(spark, table, staged, nothing, late)
    assert offsets_in(spark, table) == [0, 1, 2]


def test_a_commit_without_an_answer_is_not_repeated(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = read_state(spark, table, TOPIC)
    after = brought(nothing, 0, 3)
    staged = stage(rows_of(spark, 0, 3), table, after.commit_id, {})
    real = publishing._commit

    def without_an_answer(*arguments: Any) -> None:
        real(*arguments)
        java = jvm.jvm_of(spark)
        unknown = java.org.apache.iceberg.exceptions.CommitStateUnknownException
        raise _JavaError(unknown("lost", java.java.lang.RuntimeException("connection reset")))

    monkeypatch.setattr(publishing, "_commit", without_an_answer)
    monkeypatch.setattr(publishing, "_RETRY_SEC", 0)
    publish(spark, table, staged, nothing, after)
    assert offsets_in(spark, table) == [0, 1, 2]
    assert read_state(spark, table, TOPIC) == after


class _JavaError(Exception):
    def __init__(self, java_exception: object) -> None:
        super().__init__("from Java")
        self.java_exception = java_exception


def test_other_writers_of_the_table_do_not_conflict(spark: SparkSession, table: str) -> None:
    first = commit(spark, table, read_state(spark, table, TOPIC), 0, 3)
    after = brought(first, 3, 5)
    staged = stage(rows_of(spark, 3, 5), table, after.commit_id, {})
    rows_of(spark, 100, 102).writeTo(table).append()
    other = read_state(spark, table, "payments")
    commit_other = brought(other, 0, 1)
    publish(
        spark, table, stage(rows_of(spark, 200, 201), table, commit_other.commit_id, {}), other, commit_other
    )
    publish(spark, table, staged, first, after)
    assert offsets_in(spark, table) == [0, 1, 2, 3, 4, 100, 101, 200]
    assert read_state(spark, table, TOPIC) == after
    assert read_state(spark, table, "payments") == commit_other


def test_the_state_and_the_rows_survive_compaction_and_expiry(spark: SparkSession, table: str) -> None:
    state = read_state(spark, table, TOPIC)
    for first in range(0, 9, 3):
        state = commit(spark, table, state, first, first + 3)
    # One that was never published: a crash between the two commits.
    stage(rows_of(spark, 50, 60), table, uuid.uuid4().hex, {})
    catalog, _, name = table.partition(".")
    options = "map('min-input-files', '2')"
    spark.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => {options})")
    late = "TIMESTAMP '2999-01-01 00:00:00'"
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => {late}, retain_last => 1)"
    )
    assert jvm.load_table(spark, table).currentSnapshot().operation() == "replace"
    assert offsets_in(spark, table) == list(range(9))
    assert read_state(spark, table, TOPIC) == state
    commit(spark, table, state, 9, 10)
    assert offsets_in(spark, table) == list(range(10))


def test_a_table_that_was_rolled_back_goes_on_from_there(spark: SparkSession, table: str) -> None:
    first = commit(spark, table, read_state(spark, table, TOPIC), 0, 3)
    snapshot = jvm.load_table(spark, table).currentSnapshot().snapshotId()
    commit(spark, table, first, 3, 5)
    catalog, _, name = table.partition(".")
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{name}', {snapshot})")
    assert read_state(spark, table, TOPIC) == first
    again = commit(spark, table, first, 3, 6)
    assert offsets_in(spark, table) == list(range(6))
    assert read_state(spark, table, TOPIC) == again


def test_a_commit_without_rows_says_what_it_has_to_say(spark: SparkSession, table: str) -> None:
    nothing = read_state(spark, table, TOPIC)
    after = brought(nothing, 0, 3)
    publish(spark, table, stage(rows_of(spark, 0, 0), table, after.commit_id, {}), nothing, after)
    later = brought(after, 3, 4)
    publish(spark, table, Staged(commit_id=later.commit_id), after, later)
    assert (offsets_in(spark, table), read_state(spark, table, TOPIC)) == ([], later)


def test_a_state_that_cannot_be_read_stops_the_export(spark: SparkSession, table: str) -> None:
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{property_of(TOPIC)}' = 'nonsense')")
    with pytest.raises(ExportStateError, match="nonsense"):
        read_state(spark, table, TOPIC)
