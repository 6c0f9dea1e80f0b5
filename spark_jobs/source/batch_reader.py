"""`spark.read.format("kafscale")`: planned once, in a Python process beside the driver, and read by tasks."""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.shared_splits import AnySplit
from kafscale.settings.broker import Settings
from spark_jobs.source.offset_ranges import loss_reporter
from spark_jobs.source.options import SourceOptions, batch_points
from spark_jobs.source.packing import packed
from spark_jobs.source.planning import Planner, topic_states
from spark_jobs.source.spark_api import DataSourceReader, InputPartition
from spark_jobs.source.split_rows import SplitPartition, rows_of
from spark_jobs.source.store_access import StoreAccess

logger = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """A range of offsets of each partition, fixed when the query is planned. Raises `SourceOptionError`."""

    def __init__(self, settings: Settings, options: SourceOptions) -> None:
        batch_points(options)
        self._settings = settings
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each task. Raises `KafscaleError` of every kind, with a message that says what to do."""
        report_loss = loss_reporter(fail_on_data_loss=self._options.fail_on_data_loss, warn=logger.warning)

        async def plan(metadata: MetadataReader, objects: ListingReader) -> list[AnySplit]:
            namespace = self._settings.s3_namespace
            states = topic_states(self._options, namespace, metadata, objects)
            planner = Planner(self._options, namespace, metadata, objects, states, report_loss)
            return await planner.batch_splits()

        stores = StoreAccess(self._settings)
        try:
            tasks = packed(stores.run(plan), self._options.task_bytes, self._options.min_partitions)
            return [SplitPartition(*splits) for splits in tasks]
        finally:
            stores.close()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of the partition's splits."""
        return rows_of(self._settings, self._options, partition)
