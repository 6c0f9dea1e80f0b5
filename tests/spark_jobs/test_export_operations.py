"""End to end: many topics at once, jobs that keep going, tables that are compacted, rolled back, and shared."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order, state_in
from tests.spark_jobs.support.read_back import read_table, table_exists
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.waiting import PATIENCE_SEC, wait_until

NewTable = Callable[[IcebergCatalog], str]
TIMEOUT_SEC = PATIENCE_SEC


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    """One segment; what is appended from now on goes into its leader's journal."""
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    writer.append(0, sent(10))
    writer.lead()
    return writer


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    return Exporter(spark, writer.settings, "events", local_catalog, new_table(local_catalog))


@pytest.mark.nightly
@pytest.mark.every_spark
def test_topics_by_a_pattern_and_one_of_them_fails(
    writer: TopicWriter, exporter: Exporter, tmp_path: Path
) -> None:
    other = TopicWriter(writer.settings, "events.eu")
    other.append(0, sent(3))
    other.lead()
    expired = TopicWriter(writer.settings, "events.old")
    for start in (0, 5):
        expired.append(0, sent(5, first=start))
    TopicWriter(writer.settings, "unrelated").append(0, sent(1))
    rule = f"{exporter.table}_{{topic}}"
    metrics = tmp_path / "export.prom"
    options = (
        "--topic-pattern",
        r"events\..*",
        "--table",
        rule,
        "--json",
        "--quiet",
        "--metrics-file",
        str(metrics),
    )
    expired.lead()
    first = exporter.run(*options, "--starting-offsets", '{"events.old": {"0": 1}}')
    assert first.exit_code == 0, first.output
    for start in (10, 15):
        expired.append(0, sent(5, first=start))
    expired.move_log_start(0, 15)
    other.append(0, sent(2, first=3))

    second = exporter.run(*options)
    assert second.exit_code == 1
    summary = json.loads(second.output)
    by_topic = {one["topic"]: one for one in summary["topics"]}
    assert sorted(by_topic) == ["events", "events.eu", "events.old"]
    assert {name: one["rows"] for name, one in by_topic.items()} == {
        "events": 0,
        "events.eu": 2,
        "events.old": 0,
    }
    assert "events.old-0 offsets 10 to 14" in by_topic["events.old"]["error"]
    catalog = exporter.catalog
    assert in_order(read_table(catalog, rule.replace("{topic}", "events")).rows) == writer.rows()
    assert in_order(read_table(catalog, rule.replace("{topic}", "events_eu")).rows) == other.rows()
    assert len(read_table(catalog, rule.replace("{topic}", "events_old")).rows) == 9
    assert not table_exists(catalog, rule.replace("{topic}", "unrelated"))
    counted = metrics.read_text()
    assert 'kafscale_export_rows_total{topic="events.eu"} 5.0' in counted, "counted over both runs"
    assert 'kafscale_export_failures_total{topic="events.old"} 1.0' in counted


def test_two_topics_in_one_table_are_kept_apart(writer: TopicWriter, exporter: Exporter) -> None:
    other = TopicWriter(writer.settings, "more")
    other.append(0, sent(4, "more"))
    written = exporter.export("--topic", "more")
    both = sorted(
        [*writer.rows(), *other.rows()], key=lambda row: (row["topic"], row["partition"], row["offset"])
    )
    assert sorted(written.rows, key=lambda row: (row["topic"], row["partition"], row["offset"])) == both
    assert state_in(written.properties, "events").exported == {0: ((0, 10),)}
    assert state_in(written.properties, "more").exported == {0: ((0, 4),)}
    assert exporter.export("--topic", "more").history == written.history


@pytest.mark.nightly
def test_compaction_and_expired_snapshots_keep_the_state(writer: TopicWriter, exporter: Exporter) -> None:
    # Fewer than five small files are left as they are, and a task reads both partitions.
    for start in range(10, 60, 10):
        writer.append(1, sent(10, first=start))
        exporter.export()
        writer.append(0, sent(10, first=start))
    writer.append(1, sent(10))
    assert len(exporter.read().data_file_bytes) >= 5
    kept = exporter.export("--compact", "--expire-snapshots", "0")
    assert len(kept.history) < 3
    assert len(kept.data_file_bytes) == 1
    assert in_order(kept.rows) == writer.rows()
    writer.append(1, sent(1))
    assert in_order(exporter.export().rows) == writer.rows()
    assert exporter.export().history == exporter.read().history


@pytest.mark.nightly
def test_a_table_that_is_rolled_back_gets_again_what_it_lost(
    spark: SparkSession, writer: TopicWriter, exporter: Exporter
) -> None:
    before = exporter.export()
    writer.append(0, sent(10, first=10))
    writer.append(1, sent(10))
    exporter.export()
    name = exporter.table.partition(".")[2]
    spark.sql(
        f"CALL {exporter.catalog.name}.system.rollback_to_snapshot('{name}', {before.history[-1].snapshot_id})"
    )
    assert in_order(exporter.read().rows) == in_order(before.rows)
    assert in_order(exporter.export().rows) == writer.rows()


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_job_that_keeps_going_until_a_signal(writer: TopicWriter, exporter: Exporter) -> None:
    problems: list[BaseException] = []
    ended = threading.Event()

    def rows() -> int:
        return len(exporter.read().rows) if table_exists(exporter.catalog, exporter.table) else 0

    def write_on() -> None:
        try:
            for number, wanted in enumerate((10, 15, 20)):
                wait_until(
                    lambda wanted=wanted: ended.is_set() or rows() == wanted,  # type: ignore[misc]
                    f"{wanted} rows",
                    TIMEOUT_SEC,
                )
                writer.append(1, sent(5, first=number * 5))
        except BaseException as problem:  # noqa: BLE001 - raised again where it is waited for
            problems.append(problem)
        finally:
            if not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=write_on, name="writer")
    thread.start()
    try:
        done = exporter.run("--continuous", "--interval", "1")
    finally:
        ended.set()
        thread.join()
    if problems:
        raise problems[0]
    assert done.exit_code == 0, done.output
    assert "SIGTERM" in done.output
    assert rows() in (20, 25), "the last records came when it was told to end"
    assert in_order(exporter.export().rows) == writer.rows()


def test_the_progress_that_others_see(writer: TopicWriter, exporter: Exporter) -> None:
    exporter.export()
    writer.append(1, sent(7))
    shown = subprocess.run(
        [str(Path(sys.executable).with_name("kafscale")), "exports", "--json"],
        env=os.environ | exporter.environment(), capture_output=True, text=True, timeout=PATIENCE_SEC, check=True,
    )  # fmt: skip
    (export,) = json.loads(shown.stdout)["exports"]
    assert (export["topic"], export["table"]) == ("events", exporter.table)
    assert export["rows"] == 10
    assert export["lag"] == 7
