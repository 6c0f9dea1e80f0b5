"""Spark's progress of a batch while it runs, and after."""

import logging
import threading
from collections.abc import Callable
from unittest import mock

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kafscale.lake.report import ExportReport
from spark_jobs.job import spark_progress
from spark_jobs.job.spark_progress import JobProgress, read_job_progress, reported_while_running, watched
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.support.waiting import wait_until


def test_tasks_and_rows_of_a_blocks_jobs_are_reported(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: Callable[[IcebergCatalog], str]
) -> None:
    table = new_table(local_catalog)
    spark.range(3000).writeTo(table).create()
    spark.sparkContext.setLocalProperty("spark.job.description", "before")
    told: list[JobProgress] = []
    with watched(spark, "a block", told.append, poll_sec=0.02) as group:
        spark.table(table).where("id % 2 = 0").write.format("noop").mode("overwrite").save()
        # Spark tells of what has happened a moment later.
        wait_until(lambda: told and told[-1].tasks_done and told[-1].rows == 3000, "Spark tells of all rows")
    progress = told[-1]
    assert progress.tasks == progress.tasks_done
    assert progress.tasks_failed == 0
    assert read_job_progress(spark, group) == progress
    assert read_job_progress(spark, "another group") == JobProgress()

    # What the thread does later does not belong to it.
    spark.table(table).write.format("noop").mode("overwrite").save()
    assert read_job_progress(spark, group) == progress
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "before"
    spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert not any("a block" in thread.name for thread in threading.enumerate())


def test_a_report_is_notified(spark: SparkSession) -> None:
    lines: list[str] = []
    report = ExportReport(lines.append, lambda: 0.0, interval_sec=0)
    report.batch_started("events", {0: (0, 10)})
    seen = JobProgress(tasks=4, tasks_done=3, rows=7)
    with (
        mock.patch.object(spark_progress, "read_job_progress", return_value=seen),
        reported_while_running(spark, report, "events", poll_sec=0.01),
    ):
        wait_until(lambda: any("3 of 4 tasks done" in line and "7 rows" in line for line in lines), "a line")


def test_silence_of_spark_is_no_failure(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING),
        mock.patch.object(spark_progress, "read_job_progress", side_effect=Py4JError("no such method")),
        watched(spark, "a block", lambda _: None, poll_sec=0.01),
    ):
        wait_until(lambda: "does not tell" in caplog.text, "it is logged")
    assert caplog.text.count("does not tell") == 1
