"""Puts a reconciliation together: the topics, their tables, the Spark session, and what is printed."""

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from kafscale.errors import KafscaleError, SettingError
from kafscale.ops.progress_lines import PacedLines
from spark_jobs.cli_options import session_options
from spark_jobs.decoding.decoder import open_decoder
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.job.records import records_of
from spark_jobs.job.report import PROGRESS_SEC
from spark_jobs.job.spark_errors import SPARK_ERRORS, told_shortly
from spark_jobs.job.spark_progress import JobProgress, watched
from spark_jobs.job.table_naming import Tables, tables_of
from spark_jobs.reconciling.comparison import Comparison
from spark_jobs.reconciling.reconcile_command import ReconcileCommand
from spark_jobs.reconciling.reconciler import ReconcileOptions, Reconciler
from spark_jobs.reconciling.report import as_fields, as_text
from spark_jobs.reconciling.sides import TopicReader
from spark_jobs.session import open_session
from spark_jobs.source.store_access import StoreAccess
from spark_jobs.source.topic_state import UnknownTopicError, list_topics, read_topic


class ReconcileFailedError(KafscaleError):
    """Spark could not read one of the sides; the message is the reason that it gives."""


def run_reconcile(command: ReconcileCommand) -> bool:
    """Do what the command line says; whether all topics and their tables agree.

    Raises `SettingError` for options that are not legal, `StartupError`, `StoreError`, `ReconcileFailedError`, and
    what else keeps a table from being read.
    """
    say = (lambda _: None) if command.is_quiet else functools.partial(click.echo, err=True)
    found = []
    with contextlib.closing(StoreAccess(command.settings)) as stores:
        topics = _topics_of(command, stores)
        tables = tables_of(topics, command.table, command.dead_letter_table)
        names = list(dict.fromkeys(name for one in tables.values() for name in (one.rows, one.dead_letters)))
        spark = open_session(
            session_options(command.spark, command.settings, names, app_name="kafscale-reconcile")
        )
        for topic, named in tables.items():
            with _told(spark, topic, say):
                comparison = _reconcile(command, spark, stores, topic, named, say)
            found.append(comparison)
            if not command.as_json:
                click.echo(as_text(comparison, shows_all=command.shows_all_ranges))
    agrees = all(one.agrees for one in found)
    if command.as_json:
        fields = {"agrees": agrees, "topics": [as_fields(one) for one in found]}
        click.echo(json.dumps(fields, indent=2))
    return agrees


def _topics_of(command: ReconcileCommand, stores: StoreAccess) -> list[str]:
    topics = list(dict.fromkeys(command.topics))
    if command.topic_pattern is not None:
        known = stores.run(lambda metadata, _: list_topics(metadata))
        found = [one.name for one in known if command.topic_pattern.fullmatch(one.name)]
        if not found and not topics:
            raise SettingError(f"--topic-pattern {command.topic_pattern.pattern!r} matches no topic")
        topics += [one for one in found if one not in topics]
    return topics


def _reconcile(
    command: ReconcileCommand,
    spark: SparkSession,
    stores: StoreAccess,
    topic: str,
    tables: Tables,
    say: Callable[[str], None],
) -> Comparison:
    reader = TopicReader(
        log=lambda: stores.run(lambda metadata, objects: read_topic(metadata, objects, topic)),
        records=records_of(spark, command.settings, topic),
        decode=functools.partial(_decoded, spark, command.values),
    )
    options = ReconcileOptions(
        topic=topic,
        table=tables.rows,
        dead_letter_table=tables.dead_letters,
        range_size=command.range_size,
        except_columns=command.except_columns,
        skips_expired=command.skips_expired,
    )
    try:
        return Reconciler(spark, options, reader, say).run()
    except UnknownTopicError as problem:
        raise SettingError(f"--topic {topic!r} is not legal: {problem}") from None
    except SPARK_ERRORS as problem:
        raise ReconcileFailedError(told_shortly(problem)) from problem


def _decoded(
    spark: SparkSession, values: ValueOptions, records: DataFrame, known_type: DataType | None
) -> DataFrame:
    return open_decoder(values, spark, records, known_type).decode(records)


@contextlib.contextmanager
def _told(spark: SparkSession, topic: str, say: Callable[[str], None]) -> Iterator[None]:
    lines = PacedLines(say, time.monotonic, PROGRESS_SEC)

    def tell(progress: JobProgress) -> None:
        lines.say(
            f"{topic}: {progress.tasks_done} of {progress.tasks} tasks done, {progress.rows:,} rows read"
        )

    with watched(spark, f"reconciling topic {topic}", tell):
        yield
