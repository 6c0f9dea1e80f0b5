"""The rows of one Spark task: a split, with the query's options. Runs in an executor's Python worker."""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ObjectReader
from kafscale.settings.broker import Settings
from spark_jobs.source.options import SourceOptions
from spark_jobs.source.python_worker import spare_work_between_tasks
from spark_jobs.source.splits import Split, plan_splits
from spark_jobs.source.store_access import StoreAccess
from spark_jobs.source.topic_state import read_partition

logger = logging.getLogger(__name__)

_UNDIVIDED_BYTES = 2**63 - 1


class SplitPartition(InputPartition):
    """The parameters that Spark sends to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


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
        yield from _rows(settings, options, partition.split)
    finally:
        spare_work_between_tasks()


def _rows(settings: Settings, options: SourceOptions, split: Split) -> Iterator[pa.RecordBatch]:
    # Imported here: Spark's planning processes do not use a compiler, which takes long to load.
    from spark_jobs.source.split_reader import ExpiredRangeError, read_split

    left: Split | None = split
    while left is not None:
        next_offset = left.first_offset
        try:
            for batch in read_split(settings, left, include_headers=options.include_headers):
                yield batch
                next_offset = batch.column("offset")[-1].as_py() + 1
            return
        except ExpiredRangeError as problem:
            if options.fail_on_data_loss:
                raise
            logger.warning("%s. The query continues without them, because failOnDataLoss is false", problem)
            left = _rest_of(settings, left, next_offset)


def _rest_of(settings: Settings, split: Split, next_offset: int) -> Split | None:
    """The rest of the split from `next_offset` on, as the log is now; None if it is empty."""

    async def plan(metadata: MetadataReader, objects: ObjectReader) -> list[Split]:
        log = await read_partition(metadata, objects, split.topic, split.partition)
        return await plan_splits(
            log,
            objects,
            settings.s3_namespace,
            max(next_offset, log.log_start_offset),
            split.next_offset,
            split_bytes=_UNDIVIDED_BYTES,
        )

    stores = StoreAccess(settings)
    try:
        splits = stores.run(plan)
    finally:
        stores.close()
    return splits[0] if splits else None
