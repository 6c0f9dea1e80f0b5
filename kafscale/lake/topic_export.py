"""Exports the published records of one topic into its table, commit by commit, until the table has all."""

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from kafscale.errors import KafscaleError, TopicReplacedError
from kafscale.lake.batch_plan import (
    BatchPlan,
    ExportRefusedError,
    GapPolicy,
    Target,
    first_turn,
    has_lost,
    plan_batch,
    replaced,
    state_after,
    target_of_backfill,
    target_of_run,
    was_compacted,
)
from kafscale.lake.events import ExportEvents
from kafscale.lake.export_state import ExportState
from kafscale.lake.held_export import HeldExport
from kafscale.lake.offset_points import LogEdge, OffsetPoint, SpecificOffsets
from kafscale.lake.topic_points import backfill_of, starts_of
from kafscale.reader.topic_state import TopicLog

logger = logging.getLogger(__name__)

GIB: Final = 1024 * 1024 * 1024
DEFAULT_BATCH_BYTES: Final = 4 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicScope:
    """The records of a topic that an export is to bring into its table.

    `start`: where the first export of a topic begins. `backfill`: export this range instead of new records, from the
    first point to before the second. `max_batch_bytes`: the size of one commit, as stored in the log.
    `requires_compaction`: refuse a topic that is not compacted.
    """

    table: str
    gap_policy: GapPolicy = GapPolicy.FAIL
    max_batch_bytes: int = DEFAULT_BATCH_BYTES
    start: OffsetPoint = LogEdge.EARLIEST
    backfill: tuple[OffsetPoint, OffsetPoint] | None = None
    requires_compaction: bool = False


class WrittenBatch(Protocol):
    """A batch whose rows are stored but not visible, and whose dead letters are in their table."""

    @property
    def row_count(self) -> int:
        """The rows that `publish` makes visible."""
        ...

    @property
    def dead_letters(self) -> int:
        """The rows that are new in the dead-letter table."""
        ...


Written = TypeVar("Written", bound=WrittenBatch)


class ExportTable(Protocol[Written]):
    """The table of a topic's export, and its dead-letter table, by the engine that writes them."""

    def read_state(self) -> ExportState:
        """The export state of the topic in the table, an empty one if there is no table."""
        ...

    def write(self, batch: BatchPlan, commit_id: str, topic_id: str) -> Written:
        """Write the rows of the batch, invisible. Also without a record: it creates the table, which keeps the state.

        Raises `ExportMismatchError`, and what the engine raises.
        """
        ...

    def publish(
        self,
        written: Written,
        before: ExportState,
        after: ExportState,
        summary: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Make the rows visible and `after` the export state in one commit, if that still is `before`.

        `summary`: of the snapshot, besides the state. Raises `StaleExportError`, `CommitUnknownError`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The beginning of a topic's export: the state of its table, its log, and the offsets to export."""

    state: ExportState
    log: TopicLog
    target: Target


class TopicExport:
    """The export of one topic under its lease. `stopping`: True if it must stop after the commit in progress."""

    def __init__(
        self,
        topic: str,
        scope: TopicScope,
        held: HeldExport,
        table: ExportTable[Any],
        events: ExportEvents,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._topic = topic
        self._scope = scope
        self._held = held
        self._table = table
        self._events = events
        self._stopping = stopping

    def run(self) -> None:
        """Export everything up to the current log end, or the backfill.

        Raises `ExportRefusedError`, and the errors of the lease and of the table.
        """
        looked_sec = time.time()
        try:
            self._run()
        except TopicReplacedError as problem:
            raise replaced(problem) from problem
        self.finish(None if self._scope.backfill is not None or self._stopping() else looked_sec)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    @property
    def scope(self) -> TopicScope:
        """The records to export, and their table."""
        return self._scope

    @property
    def held(self) -> HeldExport:
        """The topic under its lease."""
        return self._held

    @property
    def table(self) -> ExportTable[Any]:
        """The tables."""
        return self._table

    def finish(self, complete_sec: float | None) -> None:
        """Tell listeners and others. `complete_sec`: the table has all that was published then, None if not."""
        if complete_sec is not None:
            self._events.topic_complete(self._topic, complete_sec)
            self._held.complete(complete_sec)
        self._held.finished()
        self._events.topic_finished(self._topic)

    def look(self) -> Look:
        """Read table and topic. Raises `ExportRefusedError`, `TopicReplacedError`, the errors of lease and table."""
        state = self._table.read_state()
        log = self._held.read_topic(_exported(state))
        if self._scope.requires_compaction and not log.is_compacted:
            raise ExportRefusedError(
                f"topic {self._topic!r} has no compact in its cleanup.policy, so old keys may expire while the table "
                "keeps them: set cleanup.policy=compact on the topic, or give --upsert-any-topic"
            )
        target = self._target(state, log)
        self._events.topic_started(
            self._topic, self._scope.table, _positions(state, log, target), ends_of(log)
        )
        return Look(state=state, log=log, target=target)

    def _run(self) -> None:
        found = self.look()
        state, log, target = found.state, found.log, found.target
        turn = first_turn(state)
        while not self._stopping():
            began = time.monotonic()
            batch = plan_batch(
                target,
                state,
                log,
                gap_policy=self._scope.gap_policy,
                max_batch_bytes=self._scope.max_batch_bytes,
                find_cuts=self._held.cuts,
                begins_at=turn,
            )
            if batch.is_empty and not target.starts.keys() - state.starts.keys():
                break
            commit_id = uuid.uuid4().hex
            self._events.batch_started(self._topic, batch.ranges)
            try:
                written = self._table.write(batch, commit_id, target.topic_id)
            except Exception as problem:  # noqa: BLE001 - raised again, unless the topic shows the reason
                log = self._read_after(problem, batch, state)
                continue
            after = state_after(state, batch, commit_id, target.topic_id, target.starts)
            self._held.check()
            self._table.publish(written, state, after)
            self.notify(batch, after, log, written, began)
            state, turn = after, batch.next_turn
            log = self._held.read_topic(_exported(state))

    def _read_after(self, problem: Exception, batch: BatchPlan, state: ExportState) -> TopicLog:
        """The topic after a batch that could not be written, if it has expired or was compacted: it is planned again.

        The engine's error does not show the reason reliably, the topic does. Raises the problem otherwise,
        and `TopicReplacedError`.
        """
        try:
            log = self._held.read_topic(_exported(state))
        except TopicReplacedError:
            raise
        except KafscaleError as unread:
            logger.warning("topic %s could not be read after a failure: %s", self._topic, unread)
            raise problem from None
        if was_compacted(problem, batch, log):
            logger.warning("topic %s is a compacted one now: %s", self._topic, problem)
            return log
        if not has_lost(batch, log):
            raise problem
        logger.warning("records of topic %s expired before they were read: %s", self._topic, problem)
        return log

    def _target(self, state: ExportState, log: TopicLog) -> Target:
        if self._scope.backfill is not None:
            return target_of_backfill(
                state, log, backfill_of(*self._scope.backfill, log, self._held.offsets_at)
            )
        start = self._scope.start
        if state.starts and not isinstance(start, SpecificOffsets):
            return target_of_run(state, log, {})
        # Offsets that the topic cannot have are refused, also where the table says where to go on.
        starts = starts_of(start, log, self._held.offsets_at)
        return target_of_run(state, log, {} if state.starts else starts)

    def notify(
        self, batch: BatchPlan, after: ExportState, log: TopicLog, written: WrittenBatch, began: float
    ) -> None:
        """Tell listeners and others of a commit."""
        for partition, ranges in batch.gaps.items():
            for first, following in ranges:
                self._events.gap_recorded(self._topic, partition, first, following)
        positions = {index: after.position(index) or 0 for index in after.starts}
        rows, dead_letters = written.row_count, written.dead_letters
        self._events.batch_committed(
            self._topic, rows, dead_letters, positions, ends_of(log), time.monotonic() - began
        )
        self._held.record(positions, ends_of(log), rows, dead_letters)


def _exported(state: ExportState) -> dict[int, int]:
    return {partition: state.position(partition) or 0 for partition in state.starts}


def ends_of(log: TopicLog) -> dict[int, int]:
    """The ends of the logs, by partition."""
    return {partition.partition: partition.log_end_offset for partition in log.partitions}


def _positions(state: ExportState, log: TopicLog, target: Target) -> dict[int, int]:
    positions = {}
    for partition in log.partitions:
        index = partition.partition
        position = state.position(index)
        positions[index] = target.starts.get(index, 0) if position is None else position
    return positions
