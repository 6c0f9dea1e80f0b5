"""`spark.readStream.format("kafscale")`: the end of the next micro-batch, and its splits.

Runs in a Python process of the query's own. Spark 4.1 requests the end of the next micro-batch without its start, so
the reader follows what Spark does: a new stream first requests an end, one that resumes from a checkpoint first
shows the end that it had reached, as an empty range.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.shared_splits import AnySplit
from kafscale.reader.topic_state import PartitionEnds, PartitionKey, PartitionLog, TopicStates
from kafscale.settings.broker import Settings
from spark_jobs.source.offset_ranges import loss_reporter, stream_ranges
from spark_jobs.source.options import SourceOptions, stream_start
from spark_jobs.source.planning import Planner, topic_states
from spark_jobs.source.split_rows import SplitPartition, rows_of
from spark_jobs.source.store_access import StoreAccess
from spark_jobs.source.stream_offsets import (
    StreamOffset,
    StreamPositions,
    positions_of,
    started_at_of,
    to_offset,
)
from spark_jobs.source.trigger_limits import TriggerLimits

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader):
    """All records from a new stream's start on, micro-batch by micro-batch. Raises `SourceOptionError`."""

    def __init__(self, settings: Settings, options: SourceOptions) -> None:
        self._start = stream_start(options)
        self._settings = settings
        self._options = options
        self._stores = StoreAccess(settings)
        self._states: TopicStates | None = None
        self._started_at: StreamPositions | None = None
        self._end: StreamOffset | None = None
        self._limits = TriggerLimits(options.trigger)

    def initialOffset(self) -> StreamOffset:  # noqa: N802
        """The stream's start; of one that was killed in its first micro-batch, the start of that one."""
        return to_offset(self._first_positions())

    def latestOffset(self) -> StreamOffset:  # noqa: N802
        """The end of the next micro-batch: the same as the last one's if nothing was published since."""
        is_first = self._end is None
        starts = self._first_positions() if self._end is None else positions_of(self._end)
        ends = self._stores.run(lambda *stores: self._latest(starts, *stores))
        if is_first or ends.positions != starts.positions or starts.replaced_in(ends):
            self._end = to_offset(ends, starts if is_first else None)
        assert self._end is not None
        return self._end

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        """One partition for each split of the micro-batch. Raises `KafscaleError` of every kind."""
        self._end = end
        self._started_at = started_at_of(end) or self._started_at
        starts, ends = positions_of(start), positions_of(end)
        if starts.positions == ends.positions and not starts.replaced_in(ends):
            return []
        splits = self._stores.run(lambda *stores: self._splits(starts, ends, *stores))
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The split's rows."""
        return rows_of(self._settings, self._options, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Does nothing: the checkpoint is the only memory of a stream."""

    def stop(self) -> None:
        """Close the stores."""
        self._stores.close()
        self._states = None

    def _first_positions(self) -> StreamPositions:
        if self._started_at is None:
            self._started_at = self._stores.run(self._find_start)
        return self._started_at

    async def _find_start(self, metadata: MetadataReader, objects: ListingReader) -> StreamPositions:
        planner = self._planner(metadata, objects)
        logs = await planner.logs()
        positions = await planner.positions(self._start, logs, is_start=True)
        return StreamPositions(positions=positions, topic_ids=_ids_in(logs))

    async def _latest(
        self, starts: StreamPositions, metadata: MetadataReader, objects: ListingReader
    ) -> StreamPositions:
        # Without a trigger a stream calls this all the time: without news it makes no request to the object store.
        ends = await self._planner(metadata, objects).ends_left(starts.positions)
        latest = StreamPositions(
            positions={key: _end(end, starts.positions.get(key, 0)) for key, end in ends.items()},
            topic_ids=_ids_in(ends),
        )
        replaced = starts.replaced_in(latest)
        positions = self._limits.end_of(starts.without(replaced), latest.positions, ends)
        if positions is None:
            return latest if replaced else starts
        return replace(latest, positions=positions)

    async def _splits(
        self, starts: StreamPositions, ends: StreamPositions, metadata: MetadataReader, objects: ListingReader
    ) -> list[AnySplit]:
        planner = self._planner(metadata, objects)
        logs = await planner.logs_left(ends.positions)
        now = StreamPositions(positions={}, topic_ids=_ids_in(logs))
        # Those that were replaced since the end was found are read by the next micro-batch, from their beginning.
        replaced, gone = starts.replaced_in(ends), ends.replaced_in(now)
        for topic, topic_id in (replaced | gone).items():
            later = ends.topic_ids[topic] if topic in replaced else now.topic_ids[topic]
            planner.report_loss(
                f"topic {topic!r} was deleted and created again (topic id {topic_id}, now {later}): what was not "
                "read of the earlier one is gone"
            )
        ranges = stream_ranges(starts.without(replaced | gone), ends.without(gone), logs, planner.report_loss)
        return await planner.splits_of(ranges, logs)

    def _planner(self, metadata: MetadataReader, objects: ListingReader) -> Planner:
        report_loss = loss_reporter(fail_on_data_loss=self._options.fail_on_data_loss, warn=logger.warning)
        namespace = self._settings.s3_namespace
        if self._states is None:
            self._states = topic_states(self._options, namespace, metadata, objects)
        return Planner(self._options, namespace, metadata, objects, self._states, report_loss)

    def __getstate__(self) -> tuple[Settings, SourceOptions]:
        """For the tasks, which read splits and nothing else."""
        return self._settings, self._options

    def __setstate__(self, state: tuple[Settings, SourceOptions]) -> None:
        self.__init__(*state)  # type: ignore[misc]


def _end(ends: PartitionEnds, position: int) -> int:
    """The end of what may be read. A stream that read uncommitted records before may be beyond it, and waits."""
    return max(ends.end_offset, min(position, ends.log_end_offset))


def _ids_in(
    logs: Mapping[PartitionKey, PartitionEnds] | Mapping[PartitionKey, PartitionLog],
) -> dict[str, UUID]:
    return {log.topic: log.topic_id for log in logs.values()}
