"""Puts an export together: the topics, their tables, the Spark session, the leases and the listeners."""

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import click
from pyspark.sql import SparkSession

from kafscale.errors import SettingError
from kafscale.lake.events import EveryListener
from kafscale.lake.export_lease import hold_export
from kafscale.lake.export_metrics import ExportMetrics
from kafscale.lake.export_mode import ExportMode
from kafscale.lake.held_export import HeldExport, holder_name
from kafscale.lake.metrics_output import read_metrics_file, served_metrics, write_metrics_file
from kafscale.lake.registry.schemas import RegistrySchemas
from kafscale.lake.report import ExportReport
from kafscale.lake.routes import RouteKind, check_routes
from kafscale.lake.stop_signals import stopped_by_signals
from kafscale.lake.table_names import Tables, names_of
from kafscale.lake.topic_points import check_named_topics
from kafscale.reader.topic_state import list_topics
from spark_jobs.cli_options import session_options
from spark_jobs.decoding.check import check_values
from spark_jobs.decoding.options import WITH_FIELDS
from spark_jobs.job.config_topics import JobTopics, job_topics
from spark_jobs.job.export_options import ExportCommand, TopicOptions
from spark_jobs.job.idle_topics import IdleTopics
from spark_jobs.job.records import records_of
from spark_jobs.job.run import ExportRun, RunOptions
from spark_jobs.job.spark_table import known_state
from spark_jobs.job.topic_schemas import TopicSchemas, opened_registry
from spark_jobs.maintaining.maintenance import Maintenance
from spark_jobs.registry_options import RegistryOptions
from spark_jobs.session import open_session
from spark_jobs.source.store_access import StoreAccess
from spark_jobs.tables.layout import check_terms
from spark_jobs.tables.table_options import TableOptions
from spark_jobs.tables.upsert import MERGE_MODE, check_upsert

_DAY_SEC = 86_400


def run_export(command: ExportCommand) -> bool:
    """Run the command; True if every topic was exported.

    Raises `SettingError` for options that are not legal, `StartupError`, `StoreError`.
    """
    metrics = ExportMetrics(time.time)
    if command.metrics_file is not None:
        read_metrics_file(metrics, command.metrics_file)
    say = (lambda _: None) if command.is_quiet else functools.partial(click.echo, err=True)
    report = ExportReport(say, time.monotonic)
    with contextlib.ExitStack() as stack:
        stores = stack.enter_context(contextlib.closing(StoreAccess(command.settings)))
        events = EveryListener(report, metrics)
        topics = job_topics(
            command,
            lambda: stores.run(lambda metadata, _: list_topics(metadata)),
            functools.partial(_topic_options, command),
            events,
            say,
        )
        _check_options(command, topics)
        _check_routes(command, topics.tables())
        registry = stack.enter_context(opened_registry(_used_registry(command), command.settings))
        spark = open_session(
            session_options(
                command.spark,
                command.settings,
                [*names_of(topics.tables()), *_route_tables(command)],
                app_name="kafscale-export",
            )
        )
        if command.metrics_addr is not None:
            stack.enter_context(served_metrics(metrics, command.metrics_addr))
        if command.mode is ExportMode.UPSERT:
            check_upsert(spark)
        if command.registry is None:
            check_values(spark, command.values)
        run = ExportRun(
            spark,
            RunOptions(
                topics=topics.of_round,
                interval_sec=command.interval_sec,
                replays_dead_letters=command.replays_dead_letters,
                atomic_in=command.settings if command.is_atomic else None,
                maintenance=_maintenance(command),
                maintenance_interval_sec=command.maintenance_interval_sec,
            ),
            hold=functools.partial(_hold, command),
            records_of=lambda held: records_of(spark, command.settings, held.topic, lambda: held.topic_id),
            events=events,
            say=say,
            schemas_of=functools.partial(_schemas_of, spark, registry, command),
            idle=_idle_topics(command, spark, stores, topics, events),
        )
        stack.enter_context(stopped_by_signals(run.stop, say))
        succeeded = run.run()
    _finish(command, report, metrics)
    return succeeded and not report.failed_topics  # also topics of which no export was begun


def _check_routes(command: ExportCommand, tables: Mapping[str, Tables]) -> None:
    if command.routes is None:
        return
    if len(tables) > 1:
        raise SettingError(
            f"--route is not legal for {len(tables)} topics, whose records would share the tables of routes: give "
            "each a run of its own"
        )
    check_routes(command.routes, names_of(tables))


def _used_registry(command: ExportCommand) -> RegistryOptions | None:
    """The registry of the options. Raises `SettingError` if nothing would ever ask it."""
    by_type = command.routes is not None and command.routes.key.kind is RouteKind.TYPE
    if (
        command.registry is not None
        and command.values.format not in WITH_FIELDS
        and not by_type
        and not command.config_options.by_config
    ):
        raise SettingError(
            f"--schema-registry is of no use with --value-format {command.values.format}: give the format of "
            "the values"
        )
    return command.registry


def _route_tables(command: ExportCommand) -> list[str]:
    if command.routes is None:
        return []
    pattern = command.routes.pattern
    return [*command.routes.tables.values(), *([] if pattern is None else [pattern])]


def _schemas_of(
    spark: SparkSession,
    registry: RegistrySchemas | None,
    command: ExportCommand,
    topic: str,
    check: Callable[[], None],
    stopping: Callable[[], bool],
) -> TopicSchemas | None:
    if registry is None or command.registry is None:
        return None
    return TopicSchemas(spark, topic, registry, command.registry, check, stopping)


def _check_options(command: ExportCommand, topics: JobTopics) -> None:
    """Raise `SettingError` for options that are not legal, also if there will be nothing to export."""
    first, until = command.backfill or (None, None)
    points = {"--starting-offsets": command.start, "--backfill-from": first, "--backfill-until": until}
    check_named_topics(points, topics.wants)
    check_terms(command.partition_by, command.sort_by)


def _idle_topics(
    command: ExportCommand, spark: SparkSession, stores: StoreAccess, topics: JobTopics, events: EveryListener
) -> IdleTopics | None:
    """None for a backfill, and for a replay of dead letters: they are not of what is new."""
    if command.backfill is not None or command.replays_dead_letters:
        return None
    read = functools.partial(known_state, spark)
    return IdleTopics(stores, command.settings, command.freshness, topics.wants, read, events)


def _topic_options(command: ExportCommand, names: Tables) -> TopicOptions:
    upserts = command.mode is ExportMode.UPSERT
    return TopicOptions(
        table=names.rows,
        dead_letter_table=names.dead_letters,
        value=replace(command.values, requires_key=upserts),
        routes=command.routes,
        dead_letter_limit=command.dead_letter_limit,
        flattens=command.flattens,
        mode=command.mode,
        requires_compaction=upserts and not command.upserts_any_topic,
        table_options=TableOptions(
            partition_by=command.partition_by,
            sort_by=command.sort_by,
            properties=command.properties,
            new_properties=MERGE_MODE if upserts else {},
            adds_columns=command.adds_columns,
        ),
        write_options={"target-file-size-bytes": str(command.target_file_bytes)},
        gap_policy=command.gap_policy,
        max_batch_bytes=command.max_batch_bytes,
        start=command.start,
        backfill=command.backfill,
    )


def _maintenance(command: ExportCommand) -> Maintenance:
    days, ttl_days = command.expire_snapshots_days, command.row_ttl_days
    return Maintenance(
        row_ttl_sec=None if ttl_days is None else ttl_days * _DAY_SEC,
        compacts=command.compacts,
        target_file_bytes=command.target_file_bytes,
        expires=days is not None,
        snapshot_age_sec=None if days is None else days * _DAY_SEC,
    )


@contextlib.contextmanager
def _hold(command: ExportCommand, topic: str, table: str) -> Iterator[HeldExport]:
    with hold_export(
        command.settings, topic, holder_name(), command.lease_ttl_sec, wait_sec=command.wait_sec
    ) as lease:
        yield HeldExport(lease, command.settings.s3_namespace, table, command.freshness)


def _finish(command: ExportCommand, report: ExportReport, metrics: ExportMetrics) -> None:
    if command.metrics_file is not None:
        write_metrics_file(metrics, command.metrics_file)
    if command.as_json:
        click.echo(json.dumps(report.summary_fields(), indent=2))
    elif not command.is_quiet:
        click.echo(report.summary_text())
