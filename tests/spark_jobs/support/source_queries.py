"""The data source without Spark: planned and read in this process, as Spark's Python processes do it."""

import pickle
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from kafscale.settings.broker import Settings
from spark_jobs.source.batch_reader import BatchReader
from spark_jobs.source.data_source import KafscaleDataSource
from spark_jobs.source.stream_reader import StreamReader


def source_options(settings: Settings, topic: str | None, options: dict[str, str]) -> dict[str, str]:
    """The options of a query of a topic in embedded stores; `topic` None: the options say which."""
    return {"dataDir": str(settings.data_dir)} | ({"subscribe": topic} if topic else {}) | options


def batch_reader(settings: Settings, topic: str | None = "events", **options: str) -> BatchReader:
    """The result of `spark.read`."""
    source = _source(settings, topic, options)
    return source.reader(source.schema())


def stream_reader(settings: Settings, topic: str | None = "events", **options: str) -> StreamReader:
    """The result of `spark.readStream`."""
    source = _source(settings, topic, options)
    return source.streamReader(source.schema())


def _source(settings: Settings, topic: str | None, options: dict[str, str]) -> KafscaleDataSource:
    given: Any = CaseInsensitiveDict(source_options(settings, topic, options))
    return KafscaleDataSource(given)


def batch_rows(settings: Settings, topic: str | None = "events", **options: str) -> list[dict[str, Any]]:
    """The rows of a batch query, by topic, partition and offset."""
    reader = batch_reader(settings, topic, **options)
    return rows_of_partitions(reader, reader.partitions())


def rows_of_partitions(
    reader: DataSourceReader | DataSourceStreamReader, partitions: Sequence[InputPartition]
) -> list[dict[str, Any]]:
    """The rows of the tasks, which get reader and partition as pickles."""
    rows: list[dict[str, Any]] = []
    for partition in partitions:
        sent_reader, sent_partition = pickle.loads(pickle.dumps((reader, partition)))
        for batch in sent_reader.read(sent_partition):
            rows += batch.to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
