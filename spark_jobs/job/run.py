"""A run of the export: topic after topic, each under its lease, once or continuously."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from kafscale.cluster.exports import ExportLeaseLostError
from kafscale.errors import KafscaleError
from kafscale.lake.atomic_export import AtomicExport
from kafscale.lake.events import ExportEvents
from kafscale.lake.held_export import HeldExport
from kafscale.lake.report import PROGRESS_SEC
from kafscale.lake.topic_export import TopicExport
from kafscale.ops.report_text import PacedLines
from kafscale.settings.broker import Settings
from spark_jobs.job.batch_records import OpenRecords
from spark_jobs.job.export_options import TopicOptions
from spark_jobs.job.idle_topics import IdleTopics
from spark_jobs.job.replay import DeadLetterReplay, complete_replays
from spark_jobs.job.spark_errors import SPARK_ERRORS, SparkGoneError, is_spark_gone, short_message
from spark_jobs.job.spark_table import SparkTable
from spark_jobs.job.topic_schemas import TopicSchemas
from spark_jobs.maintaining.maintenance import Maintenance, maintain
from spark_jobs.tables.iceberg_table import schema_of_table

logger = logging.getLogger(__name__)

_LOOK_SEC = 0.2

Hold = Callable[[str, str], contextlib.AbstractContextManager[HeldExport]]
"""The lease of a topic while it is exported into a table."""

SchemasOf = Callable[[str, Callable[[], None], Callable[[], bool]], TopicSchemas | None]
"""A registry's schemas of a topic, None without one: its name, what raises without the lease, True to end the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The topics of the next round, and how many rounds there are: one, or one every `interval_sec`.

    `atomic_in`: the stores, if all topics are exported together in cuts (`lake.atomic_export`), else None.
    `maintenance`: of the tables, after the export, and not before `maintenance_interval_sec` have passed since the
    last one.
    """

    topics: Callable[[], Mapping[str, TopicOptions]]
    interval_sec: float | None = None
    replays_dead_letters: bool = False
    atomic_in: Settings | None = None
    maintenance: Maintenance = field(default_factory=Maintenance)
    maintenance_interval_sec: float = 0.0


class ExportRun:
    """Exports topics until it is done or `stop` is called, which lets the commit in progress finish."""

    def __init__(
        self,
        spark: SparkSession,
        options: RunOptions,
        hold: Hold,
        records_of: Callable[[HeldExport], OpenRecords],
        events: ExportEvents,
        say: Callable[[str], None],
        schemas_of: SchemasOf = lambda topic, check, stopping: None,
        idle: IdleTopics | None = None,
    ) -> None:
        self._idle = idle
        self._spark = spark
        self._options = options
        self._hold = hold
        self._records_of = records_of
        self._events = events
        self._say = say
        self._schemas_of = schemas_of
        self._lines = PacedLines(say, time.monotonic, PROGRESS_SEC)
        self._routed: dict[str, None] = {}
        # Not an Event: a signal handler that sets it in a thread that is waiting for it could deadlock.
        self._is_stopping = False
        self._is_spark_gone = False
        self._maintained_at: float | None = None
        self._topics: Mapping[str, TopicOptions] = {}

    def stop(self) -> None:
        """Stop after the commit in progress. May be called from a signal handler."""
        self._is_stopping = True

    def run(self) -> bool:
        """True if every topic was exported (in the last of several rounds). Ends if Spark's JVM does."""
        while True:
            succeeded = self._round()
            if not self._is_stopping and not self._is_spark_gone:
                succeeded = self._maintain() and succeeded
            if (
                self._is_spark_gone
                or self._options.interval_sec is None
                or self._stops_within(self._options.interval_sec)
            ):
                return succeeded

    def _maintain(self) -> bool:
        """Maintain every table once, if it is time; True if all of it succeeded. No lease is held meanwhile."""
        wanted, now = self._options.maintenance, time.monotonic()
        last = self._maintained_at
        if not wanted.is_any or (last is not None and now - last < self._options.maintenance_interval_sec):
            return True
        self._maintained_at = now
        tables = [table for one in self._topics.values() for table in (one.table, one.dead_letter_table)]
        tables += self._routed
        succeeded = True
        try:
            for table in dict.fromkeys(tables):
                if schema_of_table(self._spark, table) is None:
                    continue
                for step in maintain(self._spark, table, wanted, self._lines.say):
                    succeeded = succeeded and not step.error
                    if step.done or step.error:
                        self._say(str(step))
        except (KafscaleError, *SPARK_ERRORS) as problem:
            self._is_spark_gone = is_spark_gone(self._spark)
            said = str(SparkGoneError()) if self._is_spark_gone else short_message(problem)
            self._say(f"the maintenance of tables FAILED: {said}")
            return False
        return succeeded

    def _stops_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._is_stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SEC))
        return self._is_stopping

    def _round(self) -> bool:
        succeeded = True
        self._topics = self._options.topics()
        idle = self._idle_topics(self._topics)
        if self._options.atomic_in is not None:
            return self._atomic_round(self._options.atomic_in, idle)
        for topic, options in self._topics.items():
            if self._is_stopping or self._is_spark_gone:
                break
            if idle is not None and idle.is_idle(topic, options.table):
                continue
            try:
                with self._hold(topic, options.table) as held:
                    self._export(topic, options, held)
                if idle is not None and not self._is_stopping:
                    idle.finished(topic, options.table)
            except KafscaleError as problem:
                succeeded = False
                self._events.topic_failed(topic, problem)
            except SPARK_ERRORS as problem:
                succeeded = False
                logger.debug("topic %s failed", topic, exc_info=True)
                self._is_spark_gone = is_spark_gone(self._spark)
                said = str(SparkGoneError()) if self._is_spark_gone else short_message(problem)
                self._events.topic_failed(topic, said)
        return succeeded

    def _atomic_round(self, settings: Settings, idle: IdleTopics | None) -> bool:
        """All topics or none: a cut of some could have transactions by half."""
        if self._is_stopping or not self._topics:
            return True
        tables = {topic: options.table for topic, options in self._topics.items()}
        # Each is asked, because it tells its listeners.
        are_idle = [idle is not None and idle.is_idle(topic, table) for topic, table in tables.items()]
        if all(are_idle):
            return True
        failing = ""
        exports: list[TopicExport] = []
        try:
            with contextlib.ExitStack() as stack:
                # In one order, so that two exports do not wait for each other's topics.
                for topic, options in sorted(self._topics.items()):
                    failing = topic
                    held = stack.enter_context(self._hold(topic, options.table))
                    written = self._table(topic, options, held)
                    complete_replays(self._spark, topic, options.table, written.writer)
                    exports.append(
                        TopicExport(topic, options, held, written, self._events, stopping=self._stopping)
                    )
                failing = ""
                self._export_together(settings, exports)
        except (KafscaleError, *SPARK_ERRORS) as problem:
            is_spark = isinstance(problem, SPARK_ERRORS)
            self._is_spark_gone = is_spark and is_spark_gone(self._spark)
            said = str(SparkGoneError()) if self._is_spark_gone else short_message(problem)
            for topic in self._topics:
                if failing and topic != failing:
                    self._events.topic_failed(topic, f"it is exported with topic {failing!r}, which failed")
                else:
                    self._events.topic_failed(topic, said if is_spark else problem)
            return False
        if idle is not None and not self._is_stopping:
            for topic, table in tables.items():
                idle.finished(topic, table)
        return True

    def _export_together(self, settings: Settings, exports: Sequence[TopicExport]) -> None:
        try:
            AtomicExport(settings, exports, self._events, self._say, self._stopping).run()
        except (KafscaleError, *SPARK_ERRORS) as problem:
            for one in exports:
                with contextlib.suppress(ExportLeaseLostError):
                    one.held.failed(short_message(problem))
            raise

    def _stopping(self) -> bool:
        return self._is_stopping

    def _table(self, topic: str, options: TopicOptions, held: HeldExport) -> SparkTable:
        schemas = self._schemas_of(topic, held.check, self._stopping)
        return SparkTable(
            self._spark, topic, options, self._records_of(held), held.check, self._events, schemas
        )

    def _idle_topics(self, topics: Mapping[str, TopicOptions]) -> IdleTopics | None:
        """None if each topic has to be looked after: what is maintained may have nothing new."""
        if self._idle is None or self._options.maintenance.is_any:
            return None
        self._idle.begin_round(topics)
        return self._idle

    def _export(self, topic: str, options: TopicOptions, held: HeldExport) -> None:
        written = self._table(topic, options, held)
        try:
            if self._options.replays_dead_letters:
                self._replay(topic, options, written, held)
            else:
                complete_replays(self._spark, topic, options.table, written.writer)
                TopicExport(topic, options, held, written, self._events, stopping=self._stopping).run()
        except (KafscaleError, *SPARK_ERRORS) as problem:
            is_gone = isinstance(problem, SPARK_ERRORS) and is_spark_gone(self._spark)
            with contextlib.suppress(ExportLeaseLostError):
                held.failed(str(SparkGoneError()) if is_gone else short_message(problem))
            raise
        self._routed |= dict.fromkeys(written.writer.remembered_routes().all_tables)

    def _replay(self, topic: str, options: TopicOptions, written: SparkTable, held: HeldExport) -> None:
        replay = DeadLetterReplay(
            self._spark,
            topic,
            options,
            written.writer,
            held.check,
            self._events,
            stopping=self._stopping,
        )
        left = replay.run()
        held.finished()
        self._say(f"{topic}: {left:,} dead letters do not decode, and stay in {options.dead_letter_table}")
