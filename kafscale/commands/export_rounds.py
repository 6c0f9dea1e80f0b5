"""The rounds of `kafscale export`: the topics of each, one after the other, each under its lease."""

import asyncio
import contextlib
import functools
import time
from typing import Final

from kafscale.broker.stores import open_for_reading
from kafscale.cluster.exports import ExportLeaseLostError
from kafscale.cluster.iceberg_configs import VALUE_FORMAT
from kafscale.commands.export_options import ExportOptions
from kafscale.commands.export_tables import DEFAULT_NAMESPACE, table_identifiers
from kafscale.errors import KafscaleError, SettingError
from kafscale.lake.config_topics import FoundTopics, TableRule, TopicToExport, topics_by_config
from kafscale.lake.events import ExportEvents
from kafscale.lake.export_lease import hold_export
from kafscale.lake.held_export import HeldExport, holder_name
from kafscale.lake.iceberg.catalogs import CatalogChoice
from kafscale.lake.iceberg.columns import Formats, TextFormat
from kafscale.lake.iceberg.open_catalog import opened_catalog
from kafscale.lake.iceberg.records import records_of
from kafscale.lake.iceberg.tables import LayoutOptions, TableStore
from kafscale.lake.iceberg.topic_table import IcebergTable, TopicTables
from kafscale.lake.round_topics import RoundTopics
from kafscale.lake.table_names import Tables
from kafscale.lake.topic_export import TopicExport, TopicScope
from kafscale.metadata.model import TopicRecord
from kafscale.reader.topic_state import TopicStates, list_topics
from kafscale.settings.broker import Settings

_LOOK_SEC: Final = 0.2


def find_topics(settings: Settings, options: ExportOptions, catalog: str) -> FoundTopics:
    """The topics of a round. Raises `SettingError` for options that are not legal, and errors of the stores."""
    if not options.config_options.by_config:
        assert options.topic is not None, "the command line requires one of the two"
        rows, letters = table_identifiers(options.topic, options.table, options.dead_letter_table, catalog)
        tables = Tables(rows=".".join((catalog, *rows)), dead_letters=".".join((catalog, *letters)))
        return FoundTopics(topics={options.topic: TopicToExport(tables=tables)})
    letters_rule = options.dead_letter_table
    rule = TableRule(
        table=f"{catalog}.{options.table or DEFAULT_NAMESPACE + '.{topic}'}",
        dead_letter_table="{table}_dead_letters" if letters_rule is None else f"{catalog}.{letters_rule}",
        namespaces=options.config_options.namespaces,
    )
    return topics_by_config(asyncio.run(_all_topics(settings)), rule, functools.partial(_is_wanted, options))


def _is_wanted(options: ExportOptions, topic: str) -> bool:
    if options.topic is not None:
        return topic == options.topic
    return options.topic_pattern is None or options.topic_pattern.fullmatch(topic) is not None


async def _all_topics(settings: Settings) -> list[TopicRecord]:
    async with contextlib.AsyncExitStack() as stack:
        metadata, _ = await open_for_reading(settings, stack)
        return await list_topics(metadata)


class ExportRounds:
    """Exports topics once, or every `interval_sec` of the options, until `stop` is called."""

    def __init__(
        self,
        settings: Settings,
        options: ExportOptions,
        choice: CatalogChoice,
        first: FoundTopics,
        events: ExportEvents,
    ) -> None:
        self._settings = settings
        self._options = options
        self._choice = choice
        self._events = events
        self._topics = RoundTopics(
            first, functools.partial(find_topics, settings, options, choice.name), events
        )
        self._is_stopping = False

    def stop(self) -> None:
        """Stop after the commit in progress. May be called from a signal handler."""
        self._is_stopping = True

    def run(self) -> bool:
        """True if every topic was exported (in the last of several rounds). Raises `SettingError`.

        That is for options that are not legal, before any work.
        """
        while True:
            succeeded = self._round()
            if self._options.interval_sec is None or self._stops_within(self._options.interval_sec):
                return succeeded

    def _stops_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._is_stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SEC))
        return self._is_stopping

    def _round(self) -> bool:
        found = self._topics.next()
        succeeded = not found.problems
        for topic, one in found.topics.items():
            if self._is_stopping:
                break
            try:
                self._export(topic, one)
            except KafscaleError as problem:
                if isinstance(problem, SettingError) and not self._options.config_options.by_config:
                    raise
                succeeded = False
                self._events.topic_failed(topic, problem)
        return succeeded

    def _export(self, topic: str, one: TopicToExport) -> None:
        options, settings = self._options, self._settings
        scope = TopicScope(
            table=one.tables.rows,
            gap_policy=one.gap_policy(options.gap_policy),
            max_batch_bytes=options.max_batch_bytes,
            start=one.start(options.start),
            backfill=options.backfill,
        )
        tables = topic_tables(options, self._choice.name, one)
        _require_topic(settings, topic)
        with (
            hold_export(
                settings, topic, holder_name(), options.lease_ttl_sec, wait_sec=options.wait_sec
            ) as lease,
            opened_catalog(self._choice) as catalog,
        ):
            held = HeldExport(lease, settings.s3_namespace, scope.table, options.freshness)
            table = IcebergTable(
                TableStore(catalog), topic, tables, records_of(settings, held), lease.check, self._events
            )
            try:
                TopicExport(topic, scope, held, table, self._events, lambda: self._is_stopping).run()
            except KafscaleError as problem:
                with contextlib.suppress(ExportLeaseLostError):
                    held.failed(str(problem))
                raise


def topic_tables(options: ExportOptions, catalog: str, one: TopicToExport) -> TopicTables:
    """The tables of a topic, with what its configs say. Raises `SettingError` for a format that needs Spark."""
    config = one.config
    if config.value_format is not None and config.value_format not in set(TextFormat):
        raise SettingError(
            f"topic config {VALUE_FORMAT}={config.value_format} is not supported without Spark; legal are "
            f"{' and '.join(TextFormat)}. The Spark job decodes it: python -m spark_jobs.export"
        )
    return TopicTables(
        catalog=catalog,
        rows=_identifier(one.tables.rows),
        dead_letters=_identifier(one.tables.dead_letters),
        formats=Formats(
            key=TextFormat(config.key_format or options.key_format),
            value=TextFormat(config.value_format or options.value_format),
        ),
        layout=LayoutOptions(
            partition_by=config.partition_by or options.partition_by,
            properties=options.properties,
            adds_columns=options.adds_columns,
        ),
        target_file_bytes=options.target_file_bytes,
    )


def _identifier(full_name: str) -> tuple[str, ...]:
    """Namespace and name, without the catalog."""
    return tuple(full_name.split(".")[1:])


def _require_topic(settings: Settings, topic: str) -> None:
    """Raise `UnknownTopicError` before anything is made for a topic that is not there."""

    async def look() -> None:
        async with contextlib.AsyncExitStack() as stack:
            metadata, objects = await open_for_reading(settings, stack)
            await TopicStates(metadata, objects, settings.s3_namespace).ends(topic, ())

    asyncio.run(look())
