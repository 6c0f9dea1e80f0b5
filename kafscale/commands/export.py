"""`kafscale export`: the parts put together, and run."""

import asyncio
import contextlib
import functools
import json
import os
import time
from collections.abc import Callable, Iterator

from kafscale.broker.stores import open_for_reading
from kafscale.cluster.exports import ExportLeaseLostError
from kafscale.commands.export_options import ExportOptions
from kafscale.commands.export_rounds import ExportRounds
from kafscale.commands.export_tables import Identifier
from kafscale.errors import KafscaleError
from kafscale.lake.dead_letter_limit import DeadLetterBudget
from kafscale.lake.events import EveryListener
from kafscale.lake.export_lease import hold_export
from kafscale.lake.export_metrics import ExportMetrics
from kafscale.lake.held_export import HeldExport, holder_name
from kafscale.lake.iceberg.advised_report import AdvisedReport
from kafscale.lake.iceberg.catalogs import CatalogChoice, choose_catalog
from kafscale.lake.iceberg.columns import Formats, TextFormat, row_schema
from kafscale.lake.iceberg.open_catalog import opened_catalog
from kafscale.lake.iceberg.records import records_of
from kafscale.lake.iceberg.tables import LayoutOptions, TableStore, partition_spec
from kafscale.lake.iceberg.topic_table import IcebergTable, TopicTables
from kafscale.lake.metrics_output import read_metrics_file, served_metrics, write_metrics_file
from kafscale.lake.stop_signals import stopped_by_signals
from kafscale.lake.topic_export import TopicExport, TopicScope
from kafscale.lake.topic_points import check_named_topics
from kafscale.reader.topic_state import TopicStates
from kafscale.settings.broker import Settings

EXIT_FAILED = 1


def run(
    settings: Settings,
    options: ExportOptions,
    output: Callable[[str], None],
    errors: Callable[[str], None],
) -> int:
    """Export the topics; the exit status. Raises `SettingError` for options that are not legal, before any work.

    Progress goes to `errors`, the summary to `output`.
    """
    choice = choose_catalog(options.to, options.catalog, options.catalog_properties, settings, os.environ)
    report = AdvisedReport((lambda _: None) if options.is_quiet else errors, time.monotonic)
    metrics = ExportMetrics(time.time)
    if options.metrics_file is not None:
        read_metrics_file(metrics, options.metrics_file)
    events = EveryListener(report, metrics)
    opened = functools.partial(_opened, settings, choice, events)
    say = (lambda _: None) if options.is_quiet else errors
    rounds = ExportRounds(settings, options, choice.name, opened, events, say)
    with contextlib.ExitStack() as stack:
        if options.metrics_addr is not None:
            stack.enter_context(served_metrics(metrics, options.metrics_addr))
        stack.enter_context(stopped_by_signals(rounds.stop, errors))
        succeeded = rounds.run()
    if options.metrics_file is not None:
        write_metrics_file(metrics, options.metrics_file)
    if options.is_quiet:
        for topic, problem in report.failures.items():
            errors(f"{topic}: FAILED: {problem}")
    if options.as_json:
        output(json.dumps(report.summary_fields(), indent=2))
    elif not options.is_quiet:
        output(report.summary_text())
    return 0 if succeeded else EXIT_FAILED


@contextlib.contextmanager
def _opened(
    settings: Settings,
    choice: CatalogChoice,
    report: EveryListener,
    options: ExportOptions,
    identifiers: tuple[Identifier, Identifier],
    stopping: Callable[[], bool],
) -> Iterator[TopicExport]:
    """One topic, held. `options`: its own, which name it; `identifiers`: of its table and its dead-letter table."""
    rows, letters = identifiers
    tables = TopicTables(
        catalog=choice.name,
        rows=rows,
        dead_letters=letters,
        formats=Formats(key=TextFormat(options.key_format), value=TextFormat(options.value_format)),
        layout=LayoutOptions(
            partition_by=options.partition_by,
            properties=options.properties,
            adds_columns=options.adds_columns,
        ),
        target_file_bytes=options.target_file_bytes,
    )
    _check_options(options, tables)
    with _held(settings, options, choice, tables, report, stopping) as export:
        yield export


def _check_options(options: ExportOptions, tables: TopicTables) -> None:
    """Raise `SettingError` for options that are not legal, also if there will be nothing to export."""
    first, until = options.backfill or (None, None)
    points = {"--starting-offsets": options.start, "--backfill-from": first, "--backfill-until": until}
    if not options.config_options.by_config:
        check_named_topics(points, options.topic.__eq__)
    partition_spec(options.partition_by, row_schema(tables.formats))


@contextlib.contextmanager
def _held(
    settings: Settings,
    options: ExportOptions,
    choice: CatalogChoice,
    tables: TopicTables,
    report: EveryListener,
    stopping: Callable[[], bool],
) -> Iterator[TopicExport]:
    scope = TopicScope(
        table=tables.shown(tables.rows),
        gap_policy=options.gap_policy,
        max_batch_bytes=options.max_batch_bytes,
        start=options.start,
        backfill=options.backfill,
    )
    _require_topic(settings, options.topic)
    with (
        hold_export(
            settings, options.topic, holder_name(), options.lease_ttl_sec, wait_sec=options.wait_sec
        ) as lease,
        opened_catalog(choice) as catalog,
    ):
        held = HeldExport(lease, settings.s3_namespace, scope.table, options.freshness)
        table = IcebergTable(
            TableStore(catalog),
            options.topic,
            tables,
            records_of(settings, held),
            lease.check,
            report,
            DeadLetterBudget(options.topic, options.dead_letter_limit, tables.shown(tables.dead_letters)),
        )
        try:
            yield TopicExport(options.topic, scope, held, table, report, stopping)
        except KafscaleError as problem:
            with contextlib.suppress(ExportLeaseLostError):
                held.failed(str(problem))
            raise


def _require_topic(settings: Settings, topic: str) -> None:
    """Raise `UnknownTopicError` before anything is made for a topic that is not there."""

    async def look() -> None:
        async with contextlib.AsyncExitStack() as stack:
            metadata, objects = await open_for_reading(settings, stack)
            await TopicStates(metadata, objects, settings.s3_namespace).ends(topic, ())

    asyncio.run(look())
