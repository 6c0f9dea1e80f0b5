"""The maintenance of a table, step by step: each may fail alone, and the others are done all the same."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from kafscale.errors import KafscaleError
from spark_jobs.job.spark_errors import SPARK_ERRORS, SparkGoneError, is_spark_gone, short_message
from spark_jobs.job.spark_progress import JobProgress, watched
from spark_jobs.maintaining.cleaning import expire_snapshots, remove_orphans
from spark_jobs.maintaining.compaction import compact_files, rewrite_manifests
from spark_jobs.maintaining.old_rows import delete_old_rows
from spark_jobs.maintaining.sql import MaintainedTable
from spark_jobs.tables.branches import on_main

_MIB: Final = 1024 * 1024
_SEC_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The steps to do.

    `row_ttl_sec`: delete rows whose `row_ttl_column`, or without one whose record, is older; None: none. `compacts`:
    put small files and manifests together. `expires`: expire snapshots, by the table's properties, or older than
    `snapshot_age_sec`. `orphan_age_sec`: remove files that no snapshot names and that are older; None: none.
    """

    row_ttl_sec: int | None = None
    row_ttl_column: str | None = None
    compacts: bool = False
    target_file_bytes: int = 512 * _MIB
    expires: bool = False
    snapshot_age_sec: int | None = None
    orphan_age_sec: int | None = None

    @property
    def is_any(self) -> bool:
        """True if there is a step to do."""
        return (
            self.compacts or self.expires or self.row_ttl_sec is not None or self.orphan_age_sec is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """A step of the maintenance of a table, for people. `done`: empty for nothing to do. `error`: empty for none."""

    table: str
    step: str
    seconds: float
    done: str = ""
    error: str = ""

    def __str__(self) -> str:
        said = f"FAILED: {self.error}" if self.error else self.done or "nothing to do"
        return f"{self.table}: {self.step}: {said}"


Step = Callable[[MaintainedTable], str | None]


def maintain(
    spark: SparkSession, table: str, wanted: Maintenance, tell: Callable[[str], None]
) -> Iterator[StepDone]:
    """Do the steps, and give each as it is done; `tell` takes lines of progress, from any thread.

    Every step is a commit of Iceberg's that an export beside it does not hinder, nor is hindered by. Raises
    `SparkGoneError`.
    """
    for name, step in _steps(wanted):
        yield _done(spark, MaintainedTable(spark, table), name, step, tell)


def _steps(wanted: Maintenance) -> Iterator[tuple[str, Step]]:
    """Rows go first and are not rewritten; files that the steps replace are expired after them."""
    if (ttl_sec := wanted.row_ttl_sec) is not None:
        yield (
            "old rows",
            lambda table: delete_old_rows(
                table, wanted.row_ttl_column, datetime.now(UTC) - timedelta(seconds=ttl_sec)
            ),
        )
    if wanted.compacts:
        yield "small files", lambda table: compact_files(table, wanted.target_file_bytes)
        yield "manifests", rewrite_manifests
    if wanted.expires:
        age_ms = None if wanted.snapshot_age_sec is None else wanted.snapshot_age_sec * _SEC_MS
        yield "snapshots", lambda table: expire_snapshots(table, age_ms, _now_ms())
    if (orphan_age_sec := wanted.orphan_age_sec) is not None:
        yield "orphans", lambda table: remove_orphans(table, orphan_age_sec * _SEC_MS, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _done(
    spark: SparkSession, table: MaintainedTable, name: str, step: Step, tell: Callable[[str], None]
) -> StepDone:
    began = time.monotonic()

    def progress(of: JobProgress) -> None:
        tell(f"{table.name}: {name}: {of.tasks_done:,} of {of.tasks:,} tasks done")

    done, error = "", ""
    try:
        with on_main(spark), watched(spark, f"{name} of {table.name}", progress):
            done = step(table) or ""
    except KafscaleError as problem:
        error = str(problem)
    except SPARK_ERRORS as problem:
        if is_spark_gone(spark):
            raise SparkGoneError from problem
        error = short_message(problem)
    return StepDone(table=table.name, step=name, seconds=time.monotonic() - began, done=done, error=error)
