"""A topic's table as Spark writes it, for the export that commits to it batch by batch."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pyspark.sql import SparkSession

from kafscale.errors import KafscaleError
from kafscale.lake.batch_plan import BatchPlan
from kafscale.lake.dead_letter_limit import DeadLetterBudget
from kafscale.lake.events import ExportEvents
from kafscale.lake.export_mode import ExportMode, check_mode
from kafscale.lake.export_state import ExportState
from spark_jobs.job.batch_records import OpenRecords
from spark_jobs.job.batch_write import BatchWriter, Written
from spark_jobs.job.export_options import TopicOptions
from spark_jobs.job.routed_write import RoutedWriter
from spark_jobs.job.spark_errors import SPARK_ERRORS
from spark_jobs.job.spark_progress import reported_while_running
from spark_jobs.job.topic_schemas import TopicSchemas
from spark_jobs.tables.expiry import expire_old_snapshots
from spark_jobs.tables.iceberg_table import schema_of_table, table_properties
from spark_jobs.tables.layout import quoted
from spark_jobs.tables.publish import publish, read_state
from spark_jobs.tables.upsert import publish_merged


class SparkTable:
    """See `ExportTable`. `check` raises if the topic's lease is lost; `schemas`: a registry's."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        options: TopicOptions,
        open_records: OpenRecords,
        check: Callable[[], None],
        events: ExportEvents,
        schemas: TopicSchemas | None = None,
    ) -> None:
        self._spark = spark
        self._topic = topic
        self._options = options
        self._events = events
        self._budget = DeadLetterBudget(topic, options.dead_letter_limit, options.dead_letter_table)
        kind = BatchWriter if options.routes is None else RoutedWriter
        self.writer = kind(spark, topic, options, open_records, check, schemas, self._budget)

    def read_state(self) -> ExportState:
        """See `ExportTable`."""
        if schema_of_table(self._spark, self._options.table) is None:
            return ExportState(topic=self._topic)
        state = read_state(self._spark, self._options.table, self._topic)
        check_mode(
            self._options.table, table_properties(self._spark, self._options.table), state, self._options.mode
        )
        return state

    def write(self, batch: BatchPlan, commit_id: str, topic_id: str) -> Written:
        """See `ExportTable`. Progress is reported meanwhile."""
        with reported_while_running(self._spark, self._events, self._topic):
            return self.writer.write(batch, commit_id, topic_id)

    def publish(
        self,
        written: Written,
        before: ExportState,
        after: ExportState,
        summary: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """See `ExportTable`. A table with one row for each key takes no `summary`."""
        spark, table = self._spark, self._options.table
        if self._options.mode is ExportMode.UPSERT:
            assert not summary, "the options do not allow it"
            publish_merged(spark, table, written.staged, before, after)
        else:
            publish(spark, table, written.staged, before, after, summary=summary)
        self._budget.spend(written.dead_letters)
        for table in (
            self._options.table,
            *([self._options.dead_letter_table] if written.dead_letters else ()),
        ):
            expire_old_snapshots(self._spark, table)
        self._spark.catalog.refreshTable(quoted(self._options.table))


def known_state(spark: SparkSession, table: str, topic: str) -> ExportState | None:
    """The export state of a topic in a table, None if it cannot be read: an export of the topic says why."""
    try:
        return read_state(spark, table, topic)
    except (KafscaleError, *SPARK_ERRORS):
        return None
