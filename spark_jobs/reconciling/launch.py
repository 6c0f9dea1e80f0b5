"""Puts a reconciliation together: the topics, their tables, the Spark session and the output."""

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator
from uuid import UUID

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from kafscale.errors import KafscaleError, SettingError, TopicReplacedError
from kafscale.lake.reconciling.comparison import Comparison
from kafscale.lake.reconciling.report import as_fields, as_text
from kafscale.lake.registry.schemas import RegistrySchemas
from kafscale.lake.report import PROGRESS_SEC
from kafscale.lake.table_names import Tables, names_of, tables_of
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.ops.report_text import PacedLines
from kafscale.reader.topic_state import TopicLog, TopicStates, UnknownTopicError, list_topics
from spark_jobs.cli_options import chosen_topics, session_options
from spark_jobs.decoding.decoder import open_decoder
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.job.records import records_of
from spark_jobs.job.spark_errors import SPARK_ERRORS, short_message
from spark_jobs.job.spark_progress import JobProgress, watched
from spark_jobs.job.topic_schemas import TopicSchemas, opened_registry, reads_latest
from spark_jobs.reconciling.reconcile_command import ReconcileCommand
from spark_jobs.reconciling.reconciler import ReconcileOptions, Reconciler
from spark_jobs.reconciling.sides import TopicReader
from spark_jobs.session import open_session
from spark_jobs.source.store_access import StoreAccess


class ReconcileFailedError(KafscaleError):
    """One of the sides could not be read; the message is the reason."""


def run_reconcile(command: ReconcileCommand) -> bool:
    """Run the command; True if all topics and their tables agree.

    Raises `SettingError` for options that are not legal, `StartupError`, `StoreError`, `ReconcileFailedError`, and
    other errors of a table that cannot be read.
    """
    say = (lambda _: None) if command.is_quiet else functools.partial(click.echo, err=True)
    found = []
    with contextlib.ExitStack() as stack:
        stores = stack.enter_context(contextlib.closing(StoreAccess(command.settings)))
        topics = chosen_topics(
            command.topics,
            command.topic_pattern,
            lambda: [one.name for one in stores.run(lambda metadata, _: list_topics(metadata))],
        )
        tables = tables_of(topics, command.table, command.dead_letter_table)
        spark = open_session(
            session_options(command.spark, command.settings, names_of(tables), app_name="kafscale-reconcile")
        )
        registry = stack.enter_context(opened_registry(command.registry, command.settings))
        for topic, named in tables.items():
            decode = functools.partial(_decoded, spark, _values_of(command, spark, topic, registry))
            with _reported(spark, topic, say):
                comparison = _reconcile(command, spark, stores, topic, named, decode, say)
            found.append(comparison)
            if not command.as_json:
                click.echo(as_text(comparison, shows_all=command.shows_all_ranges))
    agrees = all(one.agrees for one in found)
    if command.as_json:
        fields = {"agrees": agrees, "topics": [as_fields(one) for one in found]}
        click.echo(json.dumps(fields, indent=2))
    return agrees


def _reconcile(
    command: ReconcileCommand,
    spark: SparkSession,
    stores: StoreAccess,
    topic: str,
    tables: Tables,
    decode: Callable[[DataFrame, DataType | None], DataFrame],
    say: Callable[[str], None],
) -> Comparison:
    topic_ids: list[UUID] = []

    def read_log() -> TopicLog:
        """From the second time on of the same topic as the first time."""
        known = topic_ids[0] if topic_ids else None
        log = stores.run(functools.partial(_read_topic, command.settings.s3_namespace, topic, known))
        topic_ids[:] = [log.topic_id]
        return log

    open_records = records_of(spark, command.settings, topic, lambda: topic_ids[0])
    reader = TopicReader(
        log=read_log,
        records=lambda hulls: open_records({partition: (hull,) for partition, hull in hulls.items()}),
        decode=decode,
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
    except TopicReplacedError as problem:
        raise ReconcileFailedError(str(problem)) from problem
    except UnknownTopicError as problem:
        raise SettingError(f"--topic {topic!r} is not legal: {problem}") from None
    except SPARK_ERRORS as problem:
        raise ReconcileFailedError(short_message(problem)) from problem


async def _read_topic(
    namespace: str, topic: str, topic_id: UUID | None, metadata: MetadataReader, objects: ListingReader
) -> TopicLog:
    states = TopicStates(metadata, objects, namespace, wants=topic.__eq__)
    return await states.topic(topic, topic_id=topic_id)


def _values_of(
    command: ReconcileCommand, spark: SparkSession, topic: str, registry: RegistrySchemas | None
) -> ValueOptions:
    """The options with the schemas that the export has kept of the registry."""
    if registry is None or command.registry is None:
        return command.values
    schemas = TopicSchemas(spark, topic, registry, command.registry)
    source = schemas.source(reads_latest=reads_latest(command.values), type_name=None)
    return dataclasses.replace(command.values, source=source)


def _decoded(
    spark: SparkSession, values: ValueOptions, records: DataFrame, known_type: DataType | None
) -> DataFrame:
    return open_decoder(values, spark, records, known_type).decode(records)


@contextlib.contextmanager
def _reported(spark: SparkSession, topic: str, say: Callable[[str], None]) -> Iterator[None]:
    lines = PacedLines(say, time.monotonic, PROGRESS_SEC)

    def tell(progress: JobProgress) -> None:
        lines.say(
            f"{topic}: {progress.tasks_done} of {progress.tasks} tasks done, {progress.rows:,} rows read"
        )

    with watched(spark, f"reconciling topic {topic}", tell):
        yield
