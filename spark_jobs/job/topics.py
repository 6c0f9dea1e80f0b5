"""The topics of a job, looked up again before each round of a job that keeps going."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kafscale.errors import KafscaleError, SettingError
from kafscale.lake.events import ExportEvents
from kafscale.lake.offset_points import LogEdge
from kafscale.lake.table_names import Tables, tables_of
from spark_jobs.cli_options import chosen_topics
from spark_jobs.job.export_options import ExportCommand, TopicOptions


class ExportTopics:
    """The topics that the command names, and those that match its pattern.

    `known`: the names of all topics now; `options_of`: the options of a topic with these tables; `say` takes a line.
    Raises `SettingError` for a pattern without a topic, unless the job keeps going, and as `tables_of`.
    """

    def __init__(
        self,
        command: ExportCommand,
        known: Callable[[], Iterable[str]],
        options_of: Callable[[Tables], TopicOptions],
        events: ExportEvents,
        say: Callable[[str], None],
    ) -> None:
        self._command = command
        self._known = known
        self._options_of = options_of
        self._events = events
        self._say = say
        self._is_first_round = True
        self._found = self._find()
        if not self._found:
            say(
                f"there is no topic that matches {command.topic_pattern and command.topic_pattern.pattern!r} yet"
            )

    def wants(self, topic: str) -> bool:
        """True for a topic of the job; also for one that may become one, if the job keeps going."""
        command = self._command
        if command.interval_sec is None or command.topic_pattern is None:
            return topic in self._found
        return topic in command.topics or command.topic_pattern.fullmatch(topic) is not None

    def tables(self) -> dict[str, Tables]:
        """The tables of the topics, and without a topic those of an example."""
        return self._tables_of(self._found or ["topic"])

    def of_round(self) -> Mapping[str, TopicOptions]:
        """The topics of the next round. If they cannot be looked up, they are those of the last one.

        A topic that was created since is exported from its beginning, also if others began with the latest.
        """
        if not self._is_first_round and self._command.topic_pattern is not None:
            try:
                self._take(self._find())
            except KafscaleError as problem:
                self._say(f"the topics stay those of the last round: {problem}")
        self._is_first_round = False
        return self._found

    def _take(self, found: Mapping[str, TopicOptions]) -> None:
        for topic in sorted(found.keys() - self._found.keys()):
            self._say(f"{topic}: a new topic, which is exported from now on")
        for topic in sorted(self._found.keys() - found.keys()):
            self._events.topic_left(topic)
        self._found = {
            topic: self._found.get(topic) or _from_the_beginning(options) for topic, options in found.items()
        }

    def _find(self) -> dict[str, TopicOptions]:
        command = self._command
        try:
            topics = chosen_topics(command.topics, command.topic_pattern, self._known)
        except SettingError:
            if command.interval_sec is None:
                raise
            return {}
        return {topic: self._options_of(names) for topic, names in self._tables_of(topics).items()}

    def _tables_of(self, topics: Iterable[str]) -> dict[str, Tables]:
        return tables_of(topics, self._command.table, self._command.dead_letter_table)


def _from_the_beginning(options: TopicOptions) -> TopicOptions:
    return replace(options, start=LogEdge.EARLIEST) if options.start is LogEdge.LATEST else options
