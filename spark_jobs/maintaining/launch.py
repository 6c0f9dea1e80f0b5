"""Puts a maintenance together: the tables, the Spark session and the report."""

import contextlib
import functools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from pyspark.sql import SparkSession

from kafscale.errors import KafscaleError, SettingError
from kafscale.lake.commit_errors import TableRefusedError
from kafscale.lake.report import PROGRESS_SEC
from kafscale.lake.table_names import names_of, tables_of
from kafscale.ops.report_text import PacedLines
from kafscale.reader.topic_state import list_topics
from spark_jobs.cli_options import chosen_topics, session_options
from spark_jobs.job.spark_errors import SPARK_ERRORS, short_message
from spark_jobs.maintaining.maintain_command import MaintainCommand
from spark_jobs.maintaining.maintenance import Maintenance, StepDone, maintain
from spark_jobs.session import open_session
from spark_jobs.source.store_access import StoreAccess
from spark_jobs.tables.iceberg_table import schema_of_table

_DAY_SEC: Final = 86_400
_RULE: Final = "{topic}"


class MaintenanceFailedError(KafscaleError):
    """Spark failed outside of a step; the message is the reason that it gives."""


def run_maintenance(command: MaintainCommand) -> bool:
    """Run the command; True if every step of every table was done.

    Raises `SettingError` for options that are not legal, `StartupError`, `StoreError`, `MaintenanceFailedError`.
    """
    say: Callable[[str], None] = (
        (lambda _: None) if command.is_quiet else functools.partial(click.echo, err=True)
    )
    tables = _tables(command)
    spark = open_session(
        session_options(command.spark, command.settings, tables, app_name="kafscale-maintain")
    )
    lines = PacedLines(say, time.monotonic, PROGRESS_SEC)
    steps: list[StepDone] = []
    try:
        for table in _present(spark, tables):
            for step in maintain(spark, table, _wanted(command), lines.say):
                steps.append(step)
                say(str(step))
    except SPARK_ERRORS as problem:
        raise MaintenanceFailedError(short_message(problem)) from problem
    if command.as_json:
        click.echo(json.dumps({"steps": [_fields(one) for one in steps]}, indent=2))
    elif not command.is_quiet:
        click.echo(_summary(steps))
    return not any(one.error for one in steps)


def _tables(command: MaintainCommand) -> list[str]:
    """The names of all tables that the options give."""
    if _RULE not in command.table + command.dead_letter_table:
        return names_of(tables_of([""], command.table, command.dead_letter_table))
    if not command.topics and command.topic_pattern is None:
        raise SettingError(
            f"--table {command.table!r} is not legal: it is a rule, and no topic is named; give --topic or "
            "--topic-pattern"
        )
    with contextlib.closing(StoreAccess(command.settings)) as stores:
        topics = chosen_topics(
            command.topics,
            command.topic_pattern,
            lambda: [one.name for one in stores.run(lambda metadata, _: list_topics(metadata))],
        )
    return names_of(tables_of(topics, command.table, command.dead_letter_table))


def _present(spark: SparkSession, tables: Sequence[str]) -> list[str]:
    found = [table for table in tables if schema_of_table(spark, table) is not None]
    if not found:
        raise TableRefusedError(f"there is no table {tables[0]}, nor any other to maintain")
    return found


def _wanted(command: MaintainCommand) -> Maintenance:
    return Maintenance(
        row_ttl_sec=_seconds(command.row_ttl_days),
        row_ttl_column=command.row_ttl_column,
        compacts=command.compacts,
        target_file_bytes=command.target_file_bytes,
        expires=True,
        snapshot_age_sec=_seconds(command.snapshot_age_days),
        orphan_age_sec=_seconds(command.orphan_age_days),
    )


def _seconds(days: int | None) -> int | None:
    return None if days is None else days * _DAY_SEC


def _fields(step: StepDone) -> dict[str, Any]:
    return {
        "table": step.table,
        "step": step.step,
        "done": step.done or None,
        "seconds": round(step.seconds, 3),
        "error": step.error or None,
    }


def _summary(steps: Sequence[StepDone]) -> str:
    done, failed = sum(bool(one.done) for one in steps), sum(bool(one.error) for one in steps)
    seconds, tables = sum(one.seconds for one in steps), {one.table for one in steps}
    said = f"{len(steps)} steps of {len(tables)} tables in {seconds:.1f} s, {done} with work to do"
    return f"{said}; {failed} FAILED." if failed else f"{said}."
