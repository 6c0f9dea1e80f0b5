"""Events of the export job: one Protocol for listeners that report them or count them."""

from collections.abc import Mapping
from typing import Protocol

Offsets = Mapping[int, int]
"""An offset per partition."""

BatchRanges = Mapping[int, tuple[int, int]]
"""For each partition its first offset and the one after its last."""


class ExportEvents(Protocol):
    """Listens to an export. Calls for one topic come in order; `rows_read` and `tasks_done` from any thread."""

    def topic_started(self, topic: str, table: str, start: Offsets, end: Offsets) -> None:
        """The job begins to export `start` to `end` (exclusive) into the table.

        A continuous job calls it again in each round; the first `start` stays.
        """

    def batch_started(self, topic: str, ranges: BatchRanges) -> None:
        """Spark begins to write these offsets."""

    def rows_read(self, topic: str, rows: int) -> None:
        """The source has delivered this many rows of the running batch so far."""

    def tasks_done(self, topic: str, done: int, tasks: int) -> None:
        """This many of the known tasks of the running batch have ended."""

    def batch_committed(
        self, topic: str, rows: int, dead_letters: int, positions: Offsets, log_end: Offsets, seconds: float
    ) -> None:
        """The batch is in its tables.

        `rows`: those appended to the table; `dead_letters`: those appended to the dead-letter table instead.
        `positions`: the next offset to export; `log_end`: the log end offset; of the partitions that may have
        moved. `seconds`: from planning the batch to its commit.
        """

    def gap_recorded(self, topic: str, partition: int, first: int, next_offset: int) -> None:
        """The offsets from `first` to before `next_offset` expired before they were exported; recorded as a gap."""

    def topic_finished(self, topic: str) -> None:
        """The table has all records of this round; there may have been none."""

    def topic_complete(self, topic: str, as_of_sec: float) -> None:
        """The table has everything that was published until then, in Unix seconds; comes before `topic_finished`.

        It does not come from a run that was stopped, nor from a backfill.
        """

    def topic_left(self, topic: str) -> None:
        """The topic is not among those of the next rounds any more: switched off, or deleted."""

    def topic_failed(self, topic: str, error: BaseException | str) -> None:
        """The topic has failed in this run; its commits stay."""


class EveryListener:
    """Passes each event to all listeners, in order."""

    def __init__(self, *listeners: ExportEvents) -> None:
        self._listeners = listeners

    def topic_started(self, topic: str, table: str, start: Offsets, end: Offsets) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.topic_started(topic, table, start, end)

    def batch_started(self, topic: str, ranges: BatchRanges) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.batch_started(topic, ranges)

    def rows_read(self, topic: str, rows: int) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.rows_read(topic, rows)

    def tasks_done(self, topic: str, done: int, tasks: int) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.tasks_done(topic, done, tasks)

    def batch_committed(
        self, topic: str, rows: int, dead_letters: int, positions: Offsets, log_end: Offsets, seconds: float
    ) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.batch_committed(topic, rows, dead_letters, positions, log_end, seconds)

    def gap_recorded(self, topic: str, partition: int, first: int, next_offset: int) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.gap_recorded(topic, partition, first, next_offset)

    def topic_finished(self, topic: str) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.topic_finished(topic)

    def topic_complete(self, topic: str, as_of_sec: float) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.topic_complete(topic, as_of_sec)

    def topic_left(self, topic: str) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.topic_left(topic)

    def topic_failed(self, topic: str, error: BaseException | str) -> None:
        """See `ExportEvents`."""
        for listener in self._listeners:
            listener.topic_failed(topic, error)
