"""Spark's JVM dies under a job that keeps going: it says so, reports what it has done, and ends with status 1."""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from kafscale.lake.held_export import HeldExport
from kafscale.lake.report import ExportReport
from spark_jobs.job.export_options import TopicOptions
from spark_jobs.job.run import ExportRun, RunOptions
from spark_jobs.job.spark_errors import is_spark_gone
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_process import TIMEOUT_SEC, export_process
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.read_back import table_exists
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.waiting import wait_until


class DeadJvm:
    """As py4j is once the JVM does not accept connections."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


class DeadSession:
    _jsparkSession = DeadJvm()  # noqa: N815 - Spark's name
    catalog = DeadJvm()


def test_a_run_ends_with_a_report_when_spark_is_gone() -> None:
    spark = cast(SparkSession, DeadSession())
    assert is_spark_gone(spark)
    rounds: list[str] = []

    def hold(topic: str, table: str) -> contextlib.AbstractContextManager[HeldExport]:
        rounds.append(topic)
        raise ConnectionRefusedError(111, "Connection refused")

    options = cast(Mapping[str, TopicOptions], {"a": _Options("local.db.a"), "b": _Options("local.db.b")})
    report = ExportReport(lambda _: None, lambda: 0.0)
    run = ExportRun(
        spark,
        RunOptions(topics=lambda: options, interval_sec=3600),
        hold,
        lambda topic: pytest.fail(f"opened {topic}"),
        report,
        lambda _: None,
    )
    assert not run.run(), "it waited for the next round, or for other topics"
    assert rounds == ["a"]
    assert "Spark's JVM has ended" in report.summary_text()


class _Options:
    def __init__(self, table: str) -> None:
        self.table = table


@pytest.mark.nightly
def test_a_killed_jvm_ends_a_continuous_job_with_a_summary(
    spark: SparkSession,
    local_catalog: IcebergCatalog,
    new_table: Callable[[IcebergCatalog], str],
    tmp_path: Path,
) -> None:
    writer = TopicWriter(embedded(tmp_path / "data"), "orders", partitions=2)
    writer.append(0, sent(10))
    exporter = Exporter(spark, writer.settings, "orders", local_catalog, new_table(local_catalog))
    metrics = tmp_path / "export.prom"
    arguments = exporter.arguments(
        "--warehouse", local_catalog.warehouse, "--master", "local[1]", "--continuous", "--interval", "1",
        "--metrics-file", str(metrics), "--json",
    )  # fmt: skip
    with export_process(tmp_path / "driver", arguments, environment=exporter.environment()) as driver:
        for rows in (10, 15):
            wait_until(
                lambda rows=rows: (  # type: ignore[misc]
                    table_exists(local_catalog, exporter.table) and len(exporter.read().rows) == rows
                ),
                f"{rows} rows are in the table",
                TIMEOUT_SEC,
            )
            if rows == 10:
                writer.append(1, sent(5))
        os.kill(_java_of(driver.pid), signal.SIGKILL)
        assert driver.finish() == 1
        said = driver.log_text()
    assert "orders: FAILED: Spark's JVM has ended" in said
    assert "Traceback" not in said
    summary = json.loads(said[said.index("\n{\n") : said.rindex("}") + 1])
    assert summary["rows"] in (10, 15), "it was killed before or after the second commit was reported"
    assert summary["failed_topics"] == 1
    assert 'kafscale_export_failures_total{topic="orders"} 1.0' in metrics.read_text()
    writer.append(1, sent(5, first=5))
    assert in_order(exporter.export().rows) == writer.rows()


def _java_of(pid: int) -> int:
    """The JVM among the descendants of a process."""
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        if Path(f"/proc/{found}/comm").read_text().strip() == "java":
            return found
        children = Path(f"/proc/{found}/task/{found}/children").read_text()
        waiting += [int(one) for one in children.split()]
    raise AssertionError(f"process {pid} has no JVM")
