"""Tables are maintained step by step: files, rows, snapshots; and keep their rows and what they say of themselves."""

import itertools
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kafscale.lake.export_state import ExportState
from spark_jobs.maintain import main
from spark_jobs.maintaining.compaction import class_bounds
from spark_jobs.maintaining.maintenance import Maintenance, StepDone, maintain
from spark_jobs.tables.iceberg_table import ensure_table
from spark_jobs.tables.publish import publish, read_state, stage
from spark_jobs.tables.table_options import TableOptions
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.read_back import WrittenTable, read_table

NewTable = Callable[[IcebergCatalog], str]
MIB = 1024 * 1024
DAY_SEC = 86_400


@pytest.fixture
def table(spark: SparkSession, local_catalog: IcebergCatalog, new_table: NewTable) -> str:
    return new_table(local_catalog) + "-daily"


def commit(spark: SparkSession, name: str, number: int, days_ago: float = 0) -> ExportState:
    """Two rows, as an export commits them."""
    first = 2 * number
    at = time.time() - days_ago * DAY_SEC
    rows = spark.range(first, first + 2, 1, 1).selectExpr(
        "id AS offset", f"timestamp_seconds({at:.0f}) AS timestamp"
    )
    ensure_table(spark, name, rows.schema, TableOptions(partition_by=["days(timestamp)"]))
    before = read_state(spark, name, "orders")
    after = before.after(
        commit_id=uuid.uuid4().hex,
        topic_id="t",
        starts={0: 0},
        exported={0: ((first, first + 2),)},
        gaps={},
    )
    publish(spark, name, stage(rows, name, after.commit_id, {}), before, after)
    return after


def steps(spark: SparkSession, name: str, **wanted: Any) -> list[StepDone]:
    return list(maintain(spark, name, Maintenance(**wanted), lambda _: None))


def offsets(written: WrittenTable) -> list[int]:
    return sorted(row["offset"] for row in written.rows)


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_table_after_many_small_commits(
    spark: SparkSession, local_catalog: IcebergCatalog, table: str
) -> None:
    for number in range(5):
        state = commit(spark, table, number)
    assert steps(spark, table) == []
    assert len(read_table(local_catalog, table).data_file_bytes) == 5
    files, manifests, snapshots = steps(spark, table, compacts=True, expires=True, snapshot_age_sec=0)
    assert files.done.startswith("5 files put together into 1")
    assert (manifests.done, manifests.error) == ("", "")
    assert snapshots.done.startswith("5 snapshots expired, with 5 data files"), snapshots
    written = read_table(local_catalog, table)
    assert (len(written.data_file_bytes), len(written.history), written.staged) == (1, 1, ())
    assert offsets(written) == list(range(10))
    assert read_state(spark, table, "orders") == state
    again = steps(spark, table, compacts=True, expires=True, snapshot_age_sec=0)
    assert [(one.done, one.error) for one in again] == [("", "")] * 3, "there is nothing to do"


@pytest.mark.nightly
@pytest.mark.every_spark
def test_old_rows_go_with_their_partitions(
    spark: SparkSession, local_catalog: IcebergCatalog, table: str
) -> None:
    for number, days_ago in enumerate((40, 31, 29, 0)):
        state = commit(spark, table, number, days_ago)
    (done,) = steps(spark, table, row_ttl_sec=30 * DAY_SEC)
    assert done.done.startswith("4 rows before "), done
    assert done.done.endswith("deleted with 2 files"), "none was written again"
    written = read_table(local_catalog, table)
    assert written.history[-1].operation == "delete"
    assert offsets(written) == [4, 5, 6, 7]
    assert read_state(spark, table, "orders") == state
    (again,) = steps(spark, table, row_ttl_sec=30 * DAY_SEC)
    assert (again.done, again.error) == ("", "")
    assert len(read_table(local_catalog, table).history) == len(written.history)


def test_rows_of_a_flat_table_have_the_age_of_their_records(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    """Whatever columns their values have."""
    table = new_table(local_catalog)
    coordinates = "topic STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP"
    spark.sql(f"CREATE TABLE {table} (`timestamp` STRING, _kafka STRUCT<{coordinates}>) USING iceberg")
    ages = "VALUES (0L, current_timestamp() - INTERVAL 40 DAYS), (1L, current_timestamp())"
    spark.sql(
        f"INSERT INTO {table} SELECT '1999', named_struct('topic', 't', 'partition', 0, 'offset', number, "
        f"'timestamp', at) FROM ({ages}) AS ages(number, at)"
    )
    (refused,) = steps(spark, table, row_ttl_sec=30 * DAY_SEC, row_ttl_column="timestamp")
    assert "--row-ttl-column 'timestamp' is not legal" in refused.error
    assert refused.error.endswith("and it is string")
    (missing,) = steps(spark, table, row_ttl_sec=30 * DAY_SEC, row_ttl_column="_kafka.at")
    assert missing.error.endswith("and it is not there")
    (done,) = steps(spark, table, row_ttl_sec=30 * DAY_SEC)
    assert done.done.startswith("1 rows before "), done
    assert [row["_kafka"]["offset"] for row in read_table(local_catalog, table).rows] == [1]


def test_a_step_that_fails_leaves_the_others(spark: SparkSession, table: str) -> None:
    commit(spark, table, 0)
    rows, files, _ = steps(spark, table, row_ttl_sec=1, row_ttl_column="offset", compacts=True)
    assert "--row-ttl-column 'offset' is not legal" in rows.error
    assert (files.step, files.error) == ("small files", "")


def test_rows_that_are_staged_by_an_export_are_left(spark: SparkSession, table: str) -> None:
    before = commit(spark, table, 0)
    rows = spark.table(f"`{table.replace('.', '`.`')}`").selectExpr("offset + 2 AS offset", "timestamp")
    after = before.after(commit_id="c", topic_id="t", starts={}, exported={0: ((2, 4),)}, gaps={})
    staged = stage(rows, table, after.commit_id, {})
    (done,) = steps(spark, table, expires=True, snapshot_age_sec=0)
    assert not done.error
    publish(spark, table, staged, before, after)
    assert read_state(spark, table, "orders") == after


@pytest.mark.nightly
def test_maintenance_between_staging_and_publishing_hinders_none(
    spark: SparkSession, local_catalog: IcebergCatalog, table: str
) -> None:
    for number in range(5):
        before = commit(spark, table, number)
    rows = spark.range(10, 12, 1, 1).selectExpr("id AS offset", "current_timestamp() AS timestamp")
    after = before.after(commit_id="c", topic_id="t", starts={}, exported={0: ((10, 12),)}, gaps={})
    staged = stage(rows, table, after.commit_id, {})
    done = steps(spark, table, compacts=True, expires=True, snapshot_age_sec=0, orphan_age_sec=3 * DAY_SEC)
    assert not any(one.error for one in done)
    publish(spark, table, staged, before, after)
    assert offsets(read_table(local_catalog, table)) == list(range(12))


def test_the_command_maintains_and_reports(
    spark: SparkSession, local_catalog: IcebergCatalog, table: str, tmp_path: Path
) -> None:
    for number in range(5):
        commit(spark, table, number)
    folder = Path(local_catalog.warehouse).joinpath(*table.split(".")[1:])
    orphan, young = folder / "data/orphan.parquet", folder / "data/young.parquet"
    for file in (orphan, young):
        file.write_bytes(b"left by a killed run")
    os.utime(orphan, (time.time() - 4 * DAY_SEC,) * 2)
    done = run_command(tmp_path, "--table", table, "--json", "--quiet", "--row-ttl", "400")
    by_step = {one["step"]: one for one in done["steps"]}
    assert list(by_step) == ["old rows", "small files", "manifests", "snapshots", "orphans"]
    assert not any(one["error"] for one in done["steps"])
    assert by_step["small files"]["done"].startswith("5 files put together into 1")
    assert by_step["snapshots"]["done"] is None, "they are younger than the table's properties say"
    assert by_step["orphans"]["done"] == "1 files that no snapshot names removed"
    assert (orphan.exists(), young.exists()) == (False, True)
    assert offsets(read_table(local_catalog, table)) == list(range(10))


def run_command(folder: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(main, arguments, env={"KAFSCALE_DATA_DIR": str(folder)})
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--table", "local.db.{topic}"], "it is a rule, and no topic is named"),
        (["--table", "events"], "--table 'events' is not legal"),
        (["--table", "local.db.t", "--row-ttl", "0"], "--row-ttl"),
    ],
)
def test_options_that_are_not_legal(arguments: Sequence[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_classes_of_size_reach_from_small_to_the_target() -> None:
    bounds = class_bounds(512 * MIB)
    assert bounds[-1] == 384 * MIB
    assert bounds[0] <= 64 * 1024
    assert all(upper // 8 == lower for lower, upper in itertools.pairwise(bounds))


def simulated(commits: int, target: int) -> Iterator[tuple[int, int, int]]:
    """By commit: files, bytes written by the export, and bytes written by the compaction after each."""
    files: list[int] = []
    rewritten = 0
    for number in range(1, commits + 1):
        files.append(100_000)
        classes = [next((b for b in class_bounds(target) if size < b), 0) for size in files]
        enough = [bound for bound in set(classes) if bound and classes.count(bound) >= 5]
        if enough:
            small = [size for size in files if size < max(enough)]
            files = [size for size in files if size >= max(enough)] + [sum(small)]
            rewritten += sum(small)
        yield len(files), 100_000 * number, rewritten


def test_no_byte_is_rewritten_often() -> None:
    """Ten thousand commits of 100 kB, each followed by a compaction."""
    history = list(simulated(10_000, 512 * MIB))
    assert max(files for files, _, _ in history) < 30
    _, exported, rewritten = history[-1]
    assert rewritten < 8 * exported, "a rewrite of the whole table after each run writes 1,000 times as much"
