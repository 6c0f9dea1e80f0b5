"""Commit after commit, a table keeps few snapshots, few files of metadata, and nothing that is staged."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafscale.lake.export_state import ExportState, property_of
from spark_jobs.tables import jvm
from spark_jobs.tables.expiry import expire_old_snapshots
from spark_jobs.tables.iceberg_table import ensure_table
from spark_jobs.tables.publish import Staged, StagedRowsExpiredError, publish, read_state, stage
from spark_jobs.tables.table_options import TableOptions
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.read_back import read_table

TOPIC = "orders"
NewTable = Callable[[IcebergCatalog], str]


def rows_of(spark: SparkSession, first: int, following: int) -> DataFrame:
    return spark.range(first, following, 1, 1).selectExpr("id AS offset")


def after(before: ExportState, first: int, following: int) -> ExportState:
    commit_id = uuid.uuid4().hex
    exported = {0: ((first, following),)}
    return before.after(commit_id=commit_id, topic_id="t", starts={0: 0}, exported=exported, gaps={})


def staged_for(spark: SparkSession, name: str, state: ExportState, first: int, following: int) -> Staged:
    return stage(rows_of(spark, first, following), name, state.commit_id, {})


def offsets_in(spark: SparkSession, name: str) -> list[int]:
    spark.catalog.refreshTable(name)
    return sorted(row.offset for row in spark.table(name).collect())


def metadata_files(catalog: IcebergCatalog, name: str) -> list[str]:
    folder = Path(catalog.warehouse.removeprefix("file://")).joinpath(*name.split(".")[1:], "metadata")
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_commits_leave_few_snapshots_and_files(
    spark: SparkSession, database_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    name = new_table(database_catalog)
    brief = {
        "history.expire.max-snapshot-age-ms": "0",
        "history.expire.min-snapshots-to-keep": "2",
        "write.metadata.previous-versions-max": "2",
    }
    ensure_table(spark, name, rows_of(spark, 0, 1).schema, TableOptions(properties=brief))
    state = read_state(spark, name, TOPIC)
    for number in range(4):
        later = after(state, number, number + 1)
        publish(spark, name, staged_for(spark, name, later, number, number + 1), state, later)
        expire_old_snapshots(spark, name, least=1)
        state = later
    written = read_table(database_catalog, name)
    assert (len(written.history), written.staged) == (2, ())
    assert offsets_in(spark, name) == [0, 1, 2, 3]
    assert read_state(spark, name, TOPIC) == state
    files = metadata_files(database_catalog, name)
    assert sum(file.endswith("metadata.json") for file in files) == 3
    assert sum(file.startswith("snap-") for file in files) == 2
    table = jvm.load_table(spark, name)
    named = {str(one.path()) for s in table.snapshots() for one in s.allManifests(table.io())}
    assert len(files) == 3 + 2 + len(named), files


def test_a_table_that_was_there_keeps_its_snapshots(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    name = new_table(local_catalog)
    spark.sql(f"CREATE TABLE {name} (offset BIGINT) USING iceberg")
    for _ in range(3):
        spark.sql(f"INSERT INTO {name} VALUES (7)")
    ensure_table(spark, name, rows_of(spark, 0, 1).schema, TableOptions())
    properties = read_table(local_catalog, name).properties
    assert properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert not expire_old_snapshots(spark, name, least=1)
    assert len(read_table(local_catalog, name).history) == 3


def test_staged_rows_that_maintenance_expired_are_named(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    name = new_table(local_catalog)
    ensure_table(spark, name, rows_of(spark, 0, 1).schema, TableOptions())
    nothing = read_state(spark, name, TOPIC)
    wanted = after(nothing, 0, 3)
    staged = staged_for(spark, name, wanted, 0, 3)
    jvm.load_table(spark, name).expireSnapshots().expireSnapshotId(staged.snapshot_id).commit()
    with pytest.raises(StagedRowsExpiredError, match="run the export again"):
        publish(spark, name, staged, nothing, wanted)
    assert offsets_in(spark, name) == []
    publish(spark, name, staged_for(spark, name, wanted, 0, 3), nothing, wanted)
    assert offsets_in(spark, name) == [0, 1, 2]


def test_an_export_to_a_branch_is_seen_after_the_audit(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    """Write-audit-publish: the branch has its own state, and main takes it over with the rows."""
    name = new_table(local_catalog)
    catalog, _, rest = name.partition(".")
    ensure_table(spark, name, rows_of(spark, 0, 1).schema, TableOptions())
    nothing = read_state(spark, name, TOPIC)
    first = after(nothing, 0, 2)
    publish(spark, name, staged_for(spark, name, first, 0, 2), nothing, first)
    spark.conf.set("spark.wap.branch", "audit")
    try:
        assert read_state(spark, name, TOPIC) == first, "the branch begins as main is"
        second = after(first, 2, 4)
        publish(spark, name, staged_for(spark, name, second, 2, 4), first, second)
        third = after(second, 4, 5)
        publish(spark, name, staged_for(spark, name, third, 4, 5), second, third)
        assert read_state(spark, name, TOPIC) == third
        assert offsets_in(spark, name) == [0, 1, 2, 3, 4]
    finally:
        spark.conf.unset("spark.wap.branch")
    assert read_state(spark, name, TOPIC) == first
    assert offsets_in(spark, name) == [0, 1]
    spark.sql(f"CALL {catalog}.system.fast_forward('{rest}', 'main', 'audit')")
    assert read_state(spark, name, TOPIC) == third
    assert offsets_in(spark, name) == [0, 1, 2, 3, 4]
    assert read_table(local_catalog, name).properties[property_of(TOPIC)] != property_of(TOPIC, "audit")
    # The next commit repeats the state where it outlives snapshots, on whichever branch it is.
    spark.conf.set("spark.wap.branch", "next")
    try:
        fourth = after(third, 5, 6)
        publish(spark, name, staged_for(spark, name, fourth, 5, 6), third, fourth)
    finally:
        spark.conf.unset("spark.wap.branch")
    spark.sql(f"ALTER TABLE {name} DROP BRANCH next")
    spark.sql(f"ALTER TABLE {name} DROP BRANCH audit")
    spark.sql(f"INSERT INTO {name} VALUES (100)")
    spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{rest}', older_than => now(), retain_last => 1)"
    )
    assert read_state(spark, name, TOPIC) == third
