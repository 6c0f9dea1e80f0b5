"""Replays dead letters: those that decode now become rows, exactly once.

A page of dead letters at a time. First the rows are committed to their tables, each together with the list of these
dead letters; then the dead letters are deleted. A run that ends in between leaves the list, and whichever run comes
next deletes them before anything else. Decision 0086.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kafscale.lake.batch_plan import check_same_topic
from kafscale.lake.events import ExportEvents
from kafscale.lake.export_state import ExportState
from kafscale.lake.ranges import Ranges
from kafscale.lake.replay_state import ReplayState, encode_replay, property_of, ranges_of
from spark_jobs.decoding.dead_letters import ERROR
from spark_jobs.job.batch_records import records_in
from spark_jobs.job.batch_write import BatchWriter, StagedTable
from spark_jobs.job.export_options import TopicOptions
from spark_jobs.tables.iceberg_table import schema_of_table, table_properties
from spark_jobs.tables.layout import quoted
from spark_jobs.tables.publish import publish, read_state
from spark_jobs.tables.replayed import complete_replay

PAGE_ROWS: Final = 10_000

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(slots=True)
class _Counts:
    rows: int = 0
    left: int = 0


class DeadLetterReplay:
    """The replay of one topic under its lease. `check` raises if that is lost; `stopping`: stop after this page."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        options: TopicOptions,
        writer: BatchWriter,
        check: Callable[[], None],
        events: ExportEvents,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._topic = topic
        self._options = options
        self._writer = writer
        self._check = check
        self._events = events
        self._stopping = stopping

    def run(self) -> int:
        """Replay every dead letter of the topic that decodes; returns how many do not.

        Raises what an export raises.
        """
        counts = _Counts()
        self._events.topic_started(self._topic, self._options.table, {}, {})
        after: Place | None = None
        while not self._stopping():
            began = time.monotonic()
            self.complete()
            page = self._page(after)
            if page is None:
                break
            try:
                after = self._replay(page, counts, began)
            finally:
                page.unpersist()
        self._events.topic_finished(self._topic)
        return counts.left

    def complete(self) -> None:
        """Finish what an earlier run, or an earlier page, has begun."""
        complete_replays(self._spark, self._topic, self._options.table, self._writer)

    def _page(self, after: Place | None) -> DataFrame | None:
        """The next dead letters with the columns of records, in order; None if there are no more."""
        table = self._options.dead_letter_table
        own = self._options.table
        if schema_of_table(self._spark, table) is None or schema_of_table(self._spark, own) is None:
            return None
        # Those that the topic's table does not know yet belong to an export that ended between its commits; the
        # next export will look for them there.
        known = self._known(read_state(self._spark, own, self._topic))
        letters = self._spark.table(quoted(table)).where(sql.col("topic") == self._topic)
        letters = letters.join(
            sql.broadcast(known),
            (sql.col("partition") == sql.col("known_partition"))
            & (sql.col("offset") >= sql.col("first"))
            & (sql.col("offset") < sql.col("following")),
            "left_semi",
        )
        if after is not None:
            letters = letters.where(
                (sql.col("partition") > after[0])
                | ((sql.col("partition") == after[0]) & (sql.col("offset") > after[1]))
            )
        page = letters.drop(ERROR).orderBy("partition", "offset").limit(PAGE_ROWS)
        page = page.persist(StorageLevel.MEMORY_AND_DISK)
        if page.isEmpty():
            page.unpersist()
            return None
        return page

    def _known(self, state: ExportState) -> DataFrame:
        rows = [(partition, *one) for partition, ranges in state.exported.items() for one in ranges]
        return self._spark.createDataFrame(rows, "known_partition INT, first BIGINT, following BIGINT")

    def _replay(self, page: DataFrame, counts: _Counts, began: float) -> Place:
        """Returns the page's last place."""
        commit_id = uuid.uuid4().hex
        self._events.batch_started(self._topic, {})
        last = page.selectExpr("max(struct(partition, offset)) AS last").collect()[0]["last"]
        own = read_state(self._spark, self._options.table, self._topic)
        letters = self._options.dead_letter_table
        check_same_topic(read_state(self._spark, letters, self._topic), own.topic_id, letters)
        staged = self._writer.stage(records_in(page, is_kept=True), commit_id)
        try:
            places = [_places(one) for one in staged.tables]
            for one, decoded in zip(staged.tables, places, strict=True):
                assert len(decoded) == one.staged.row_count, "the rows are those of the dead letters"
            rows = self._publish(staged.tables, places, own.topic_id)
        finally:
            staged.release()
        counts.left += page.count() - rows
        counts.rows += rows
        if rows:
            self._events.batch_committed(self._topic, rows, 0, {}, {}, time.monotonic() - began)
        return (int(last["partition"]), int(last["offset"]))

    def _publish(
        self, tables: Sequence[StagedTable], places: Sequence[Sequence[Place]], topic_id: str
    ) -> int:
        for one, decoded in zip(tables, places, strict=True):
            if not decoded:
                continue
            before = read_state(self._spark, one.table, self._topic)
            check_same_topic(before, topic_id, one.table)
            after = before.after(
                commit_id=one.staged.commit_id, topic_id=topic_id, starts={}, exported={}, gaps={}
            )
            offsets: dict[int, Ranges] = ranges_of(decoded)
            replayed = ReplayState(
                commit_id=after.commit_id, dead_letter_table=self._options.dead_letter_table, offsets=offsets
            )
            self._check()
            publish(
                self._spark,
                one.table,
                one.staged,
                before,
                after,
                {property_of(self._topic): encode_replay(replayed)},
            )
            self._spark.catalog.refreshTable(quoted(one.table))
        return sum(map(len, places))


def complete_replays(spark: SparkSession, topic: str, table: str, writer: BatchWriter) -> None:
    """Finish what a replay has begun, in the topic's table and in those of its routes."""
    for name in (table, *writer.remembered_routes().all_tables):
        if property_of(topic) in table_properties(spark, name):
            complete_replay(spark, name, topic)


def _places(staged: StagedTable) -> list[Place]:
    rows = staged.rows.select("partition", "offset").collect()
    return [(int(row["partition"]), int(row["offset"])) for row in rows]
