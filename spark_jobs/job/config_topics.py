"""The topics of a job: those of the command line, or with `--topics-by-config` those that are switched on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from kafscale.lake.config_topics import FoundTopics, TableRule, TopicToExport, topics_by_config
from kafscale.lake.events import ExportEvents
from kafscale.lake.round_topics import RoundTopics
from kafscale.lake.table_names import Tables, tables_of
from kafscale.metadata.model import TopicRecord
from spark_jobs.job.config_values import values_by_config
from spark_jobs.job.export_options import ExportCommand, TopicOptions
from spark_jobs.job.topics import ExportTopics

Known = Callable[[], Sequence[TopicRecord]]
"""All topics that there are now. Raises `StoreError`."""

OptionsOf = Callable[[Tables], TopicOptions]
"""The command line's options of a topic with these tables."""


class JobTopics(Protocol):
    """The topics of a job."""

    def wants(self, topic: str) -> bool:
        """True for a topic that is, or may become, one of the job."""
        ...

    def tables(self) -> Mapping[str, Tables]:
        """The tables of the topics, or without a topic those of an example, for the catalogs that they need."""
        ...

    def of_round(self) -> Mapping[str, TopicOptions]:
        """The topics of the next round, and their options."""
        ...


def job_topics(
    command: ExportCommand,
    known: Known,
    options_of: OptionsOf,
    events: ExportEvents,
    say: Callable[[str], None],
) -> JobTopics:
    """The topics of the command. Raises `SettingError` for options that are not legal, `StoreError`."""
    if command.config_options.by_config:
        return ConfigTopics(command, known, options_of, events)
    return ExportTopics(command, lambda: [one.name for one in known()], options_of, events, say)


class ConfigTopics:
    """The topics that are switched on, looked up before each round; those that cannot be exported are reported."""

    def __init__(
        self, command: ExportCommand, known: Known, options_of: OptionsOf, events: ExportEvents
    ) -> None:
        self._command = command
        self._known = known
        self._options_of = options_of
        self._events = events
        self._rounds = RoundTopics(self._find(), self._find, events)

    def wants(self, topic: str) -> bool:
        """True for a topic that is exported if it is switched on."""
        names, pattern = self._command.topics, self._command.topic_pattern
        if not names and pattern is None:
            return True
        return topic in names or (pattern is not None and pattern.fullmatch(topic) is not None)

    def tables(self) -> Mapping[str, Tables]:
        """See `JobTopics`: topics' own tables are in the same catalog."""
        return tables_of(["topic"], self._command.table, self._command.dead_letter_table)

    def of_round(self) -> Mapping[str, TopicOptions]:
        """See `JobTopics`."""
        found = self._rounds.next()
        if found.problems and self._command.is_atomic:
            # A cut has all topics or none.
            failing = next(iter(found.problems))
            for topic in found.topics:
                self._events.topic_failed(topic, f"it is exported with topic {failing!r}, which failed")
            return {}
        return {topic: self._options(one) for topic, one in found.topics.items()}

    def _find(self) -> FoundTopics:
        command = self._command
        rule = TableRule(
            table=command.table,
            dead_letter_table=command.dead_letter_table,
            namespaces=command.config_options.namespaces,
        )
        return topics_by_config(self._known(), rule, self.wants)

    def _options(self, one: TopicToExport) -> TopicOptions:
        """The command line's options, and what the topic says above them."""
        options, config = self._options_of(one.tables), one.config
        return replace(
            options,
            value=values_by_config(options.value, config),
            table_options=replace(
                options.table_options,
                partition_by=config.partition_by or options.table_options.partition_by,
                sort_by=config.sort_by or options.table_options.sort_by,
            ),
            gap_policy=one.gap_policy(options.gap_policy),
            start=one.start(options.start),
        )
