"""The rounds of `kafscale export`: the topics of each, one after the other, with what their configs say."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kafscale.broker.stores import open_for_reading
from kafscale.cluster.iceberg_configs import VALUE_FORMAT
from kafscale.commands.export_options import ExportOptions
from kafscale.commands.export_tables import DEFAULT_NAMESPACE, Identifier, table_identifiers
from kafscale.errors import KafscaleError, SettingError
from kafscale.lake.atomic_export import AtomicCutError, AtomicExport
from kafscale.lake.config_topics import FoundTopics, TableRule, TopicToExport, topics_by_config
from kafscale.lake.events import ExportEvents
from kafscale.lake.iceberg.columns import TextFormat
from kafscale.lake.round_topics import RoundTopics
from kafscale.lake.table_names import Tables
from kafscale.lake.topic_export import TopicExport
from kafscale.metadata.model import TopicRecord
from kafscale.reader.topic_state import list_topics
from kafscale.settings.broker import Settings

_LOOK_SEC: Final = 0.2

Opened = Callable[
    [ExportOptions, tuple[Identifier, Identifier], Callable[[], bool]],
    contextlib.AbstractContextManager[TopicExport],
]
"""A topic's export under its lease: its options, its table and dead-letter table, True to end after a commit."""


class ExportRounds:
    """Exports topics once, or every `interval_sec` of the options, until `stop` is called. `catalog`: its name.

    `say`: takes lines for people. Raises `SettingError` for options that are not legal, and errors of the stores.
    """

    def __init__(
        self,
        settings: Settings,
        options: ExportOptions,
        catalog: str,
        opened: Opened,
        events: ExportEvents,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._options = options
        self._catalog = catalog
        self._opened = opened
        self._say = say
        self._events = events
        self._topics = RoundTopics(self._find(), self._find, events)
        self._is_stopping = False

    def stop(self) -> None:
        """Stop after the commit in progress. May be called from a signal handler."""
        self._is_stopping = True

    def run(self) -> bool:
        """True if every topic was exported (in the last of several rounds).

        Raises `SettingError` for options that are not legal, before any work.
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
        if self._options.is_atomic:
            return self._atomic_round(found)
        succeeded = not found.problems
        for topic, one in found.topics.items():
            if self._is_stopping:
                break
            try:
                own = options_by_config(self._options, topic, one)
                identifiers = _identifier(one.tables.rows), _identifier(one.tables.dead_letters)
                with self._opened(own, identifiers, self._stopping) as export:
                    export.run()
            except KafscaleError as problem:
                if isinstance(problem, SettingError) and not self._options.config_options.by_config:
                    raise
                succeeded = False
                self._events.topic_failed(topic, problem)
        return succeeded

    def _stopping(self) -> bool:
        return self._is_stopping

    def _atomic_round(self, found: FoundTopics) -> bool:
        """All topics or none: a cut of some could have transactions by half."""
        if self._is_stopping or not found.topics:
            return not found.problems
        failing = ""
        try:
            if found.problems:
                failing, problem = next(iter(found.problems.items()))
                raise AtomicCutError(problem)
            with contextlib.ExitStack() as stack:
                exports = []
                # In one order, so that two exports do not wait for each other's topics.
                for topic, one in sorted(found.topics.items()):
                    failing = topic
                    own = options_by_config(self._options, topic, one)
                    identifiers = _identifier(one.tables.rows), _identifier(one.tables.dead_letters)
                    exports.append(stack.enter_context(self._opened(own, identifiers, self._stopping)))
                failing = ""
                AtomicExport(self._settings, exports, self._events, self._say, self._stopping).run()
        except KafscaleError as problem:
            if isinstance(problem, SettingError) and not self._options.config_options.by_config:
                raise
            for topic in found.topics:
                if failing and topic != failing:
                    self._events.topic_failed(topic, f"it is exported with topic {failing!r}, which failed")
                else:
                    self._events.topic_failed(topic, problem)
            return False
        return True

    def _find(self) -> FoundTopics:
        options, catalog = self._options, self._catalog
        if not options.config_options.by_config:
            rows, letters = table_identifiers(
                options.topic, options.table, options.dead_letter_table, catalog
            )
            tables = Tables(rows=".".join((catalog, *rows)), dead_letters=".".join((catalog, *letters)))
            return FoundTopics(topics={options.topic: TopicToExport(tables=tables)})
        letters_rule = options.dead_letter_table
        rule = TableRule(
            table=f"{catalog}.{options.table or DEFAULT_NAMESPACE + '.{topic}'}",
            dead_letter_table="{table}_dead_letters" if letters_rule is None else f"{catalog}.{letters_rule}",
            namespaces=options.config_options.namespaces,
        )
        return topics_by_config(asyncio.run(_all_topics(self._settings)), rule, self._wants)

    def _wants(self, topic: str) -> bool:
        if self._options.topic:
            return topic == self._options.topic
        pattern = self._options.topic_pattern
        return pattern is None or pattern.fullmatch(topic) is not None


async def _all_topics(settings: Settings) -> list[TopicRecord]:
    async with contextlib.AsyncExitStack() as stack:
        metadata, _ = await open_for_reading(settings, stack)
        return await list_topics(metadata)


def options_by_config(options: ExportOptions, topic: str, one: TopicToExport) -> ExportOptions:
    """The options of one topic, with what its configs say. Raises `SettingError` for a format that needs Spark."""
    config = one.config
    if config.value_format is not None and config.value_format not in set(TextFormat):
        raise SettingError(
            f"topic config {VALUE_FORMAT}={config.value_format} is not supported without Spark; legal are "
            f"{' and '.join(TextFormat)}. The Spark job decodes it: python -m spark_jobs.export"
        )
    return replace(
        options,
        topic=topic,
        start=one.start(options.start),
        gap_policy=one.gap_policy(options.gap_policy),
        partition_by=config.partition_by or options.partition_by,
        value_format=config.value_format or options.value_format,
        key_format=config.key_format or options.key_format,
    )


def _identifier(full_name: str) -> Identifier:
    """Namespace and name, without the catalog."""
    return tuple(full_name.split(".")[1:])
