"""The rows of one Spark task: its splits, with the query's options. Runs in an executor's Python worker."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.replanning import ExpiredRangeError
from kafscale.reader.shared_splits import UNDIVIDED_BYTES, AnySplit, divide, parts_of
from kafscale.reader.splits import plan_pieces
from kafscale.reader.topic_state import TopicStates, UnknownTopicError
from kafscale.settings.broker import Settings
from spark_jobs.source.options import SourceOptions
from spark_jobs.source.python_worker import spare_work_between_tasks
from spark_jobs.source.spark_api import InputPartition
from spark_jobs.source.store_access import StoreAccess

logger = logging.getLogger(__name__)


class SplitPartition(InputPartition):
    """The parameters that Spark sends to a task: the splits that it reads, one after the other."""

    def __init__(self, *splits: AnySplit) -> None:
        super().__init__(splits)
        self.splits = splits


def rows_of(
    settings: Settings, options: SourceOptions, partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    """The records as Arrow batches, in order. Without a partition (Spark calls it so if there are none) no rows.

    With `failOnDataLoss=false` records that expired since the split was planned are skipped with a warning.
    Raises `CorruptDataError`, `ExpiredRangeError`, `StoreError`.
    """
    if partition is None:
        return
    assert isinstance(partition, SplitPartition)
    try:
        yield from _rows(settings, options, partition.splits)
    finally:
        spare_work_between_tasks()


def _rows(settings: Settings, options: SourceOptions, splits: Sequence[AnySplit]) -> Iterator[pa.RecordBatch]:
    # Imported here: Spark's planning processes do not use a compiler, which takes long to load.
    from kafscale.arrow.split_columns import read_split

    left: list[AnySplit] = list(splits)
    while left:
        one = left.pop(0)
        positions = {part.partition: part.first_offset for part in parts_of(one)}
        try:
            for batch in read_split(settings, one, include_headers=options.include_headers):
                yield batch
                if not options.fail_on_data_loss:
                    positions |= _ends_of(batch)
        except ExpiredRangeError as problem:
            if options.fail_on_data_loss:
                raise
            logger.warning("%s. The query continues without them, because failOnDataLoss is false", problem)
            left = [*_rest_of(settings, one, positions), *left]


def _ends_of(batch: pa.RecordBatch) -> dict[int, int]:
    """The offset after the last row of each partition in the batch."""
    partitions = batch.column("partition").to_numpy()
    lasts = np.flatnonzero(np.diff(partitions, append=-1))
    offsets = batch.column("offset").to_numpy()
    return {int(partitions[row]): int(offsets[row]) + 1 for row in lasts}


def _rest_of(settings: Settings, split: AnySplit, positions: Mapping[int, int]) -> list[AnySplit]:
    """The rest of the split from the positions on, as the logs are now; none if the topic is gone."""
    parts = {part.partition: part for part in parts_of(split)}

    topic_id = parts_of(split)[0].topic_id

    async def plan(metadata: MetadataReader, objects: ListingReader) -> list[AnySplit]:
        needed = {partition: part.next_offset for partition, part in parts.items()}
        states = TopicStates(metadata, objects, settings.s3_namespace)
        planned = []
        for now in await states.partitions(split.topic, list(parts), needed, topic_id=topic_id):
            log = replace(now, aborted=parts[now.partition].aborted)
            first_offset = max(positions[log.partition], log.log_start_offset)
            next_offset = needed[log.partition]
            planned.append(
                (log, await plan_pieces(log, objects, settings.s3_namespace, first_offset, next_offset))
            )
        return divide(planned, UNDIVIDED_BYTES)

    stores = StoreAccess(settings)
    try:
        return stores.run(plan)
    except UnknownTopicError:
        return []
    finally:
        stores.close()
