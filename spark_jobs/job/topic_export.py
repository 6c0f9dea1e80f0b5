"""Exports the published records of one topic into its table, commit by commit, until the table has all."""

import logging
import time
import uuid
from collections.abc import Callable

from pyspark.sql import SparkSession

from kafscale.reader.topic_state import TopicLog
from spark_jobs.job.batch_plan import (
    BatchPlan,
    Target,
    plan_batch,
    state_after,
    target_of_backfill,
    target_of_run,
)
from spark_jobs.job.batch_write import BatchWriter, OpenRecords, Written
from spark_jobs.job.events import ExportEvents
from spark_jobs.job.export_options import TopicOptions
from spark_jobs.job.held_export import HeldExport
from spark_jobs.job.spark_progress import reported_while_running
from spark_jobs.job.topic_points import backfill_of, starts_of
from spark_jobs.tables.export_state import ExportState
from spark_jobs.tables.iceberg_table import schema_of_table
from spark_jobs.tables.layout import quoted
from spark_jobs.tables.publish import publish, read_state

logger = logging.getLogger(__name__)


class TopicExport:
    """The export of one topic under its lease. `stopping`: True if it must stop after the commit in progress."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        options: TopicOptions,
        held: HeldExport,
        open_records: OpenRecords,
        events: ExportEvents,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._topic = topic
        self._options = options
        self._held = held
        self._events = events
        self._stopping = stopping
        self._writer = BatchWriter(spark, topic, options, open_records, held.check)

    def run(self) -> None:
        """Export everything up to the current log end, or the backfill.

        Raises `ExportRefusedError`, `StaleExportError`, `CommitUnknownError`, the lease's and the writer's errors.
        """
        state = self._read_state()
        log = self._held.read_topic(_exported(state))
        target = self._target(state, log)
        self._events.topic_started(
            self._topic, self._options.table, _positions(state, log, target), _ends(log)
        )
        while not self._stopping():
            began = time.monotonic()
            batch = plan_batch(
                target,
                state,
                log,
                gap_policy=self._options.gap_policy,
                max_batch_bytes=self._options.max_batch_bytes,
            )
            if batch.is_empty and not target.starts.keys() - state.starts.keys():
                break
            state = self._export(batch, state, target, log, began)
            log = self._held.read_topic(_exported(state))
        self._held.finished()
        self._events.topic_finished(self._topic)

    def _read_state(self) -> ExportState:
        if schema_of_table(self._spark, self._options.table) is None:
            return ExportState(topic=self._topic)
        return read_state(self._spark, self._options.table, self._topic)

    def _target(self, state: ExportState, log: TopicLog) -> Target:
        if self._options.backfill is not None:
            return target_of_backfill(
                state, log, backfill_of(*self._options.backfill, log, self._held.offsets_at)
            )
        starts = {} if state.starts else starts_of(self._options.start, log, self._held.offsets_at)
        return target_of_run(state, log, starts)

    def _export(
        self, batch: BatchPlan, state: ExportState, target: Target, log: TopicLog, began: float
    ) -> ExportState:
        commit_id = uuid.uuid4().hex
        self._events.batch_started(self._topic, batch.ranges)
        with reported_while_running(self._spark, self._events, self._topic):
            # Also without a single record: it creates the table, which keeps the state.
            written = self._writer.write(batch, commit_id, target.topic_id)
        after = state_after(state, batch, commit_id, target.topic_id, target.starts)
        self._held.check()
        publish(self._spark, self._options.table, written.staged, state, after)
        self._spark.catalog.refreshTable(quoted(self._options.table))
        self._notify(batch, after, log, written, began)
        return after

    def _notify(
        self, batch: BatchPlan, after: ExportState, log: TopicLog, written: Written, began: float
    ) -> None:
        for partition, ranges in batch.gaps.items():
            for first, following in ranges:
                self._events.gap_recorded(self._topic, partition, first, following)
        positions = {index: after.position(index) or 0 for index in after.starts}
        rows = written.staged.row_count
        self._events.batch_committed(
            self._topic, rows, written.dead_letters, positions, _ends(log), time.monotonic() - began
        )
        self._held.record(positions, _ends(log), rows, written.dead_letters)


def _exported(state: ExportState) -> dict[int, int]:
    return {partition: state.position(partition) or 0 for partition in state.starts}


def _ends(log: TopicLog) -> dict[int, int]:
    return {partition.partition: partition.log_end_offset for partition in log.partitions}


def _positions(state: ExportState, log: TopicLog, target: Target) -> dict[int, int]:
    positions = {}
    for partition in log.partitions:
        index = partition.partition
        position = state.position(index)
        positions[index] = target.starts.get(index, 0) if position is None else position
    return positions
