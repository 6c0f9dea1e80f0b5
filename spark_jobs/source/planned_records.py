"""The records of a batch for a Spark without Python data sources: planned here, and read by tasks.

Spark 3.5 has no `format(...)` written in Python. The same reader works with what it has: this process plans the
splits, each becomes the row of a frame that has one partition for each, and `mapInArrow` reads them. Columns, rows,
checks and errors are those of the data source. There are no streams.
"""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.source.batch_reader import BatchReader
from spark_jobs.source.columns import spark_schema
from spark_jobs.source.options import parse_options, settings_of
from spark_jobs.source.python_worker import spare_work_between_tasks
from spark_jobs.source.row_step import RowStep

_TASK: Final = "task binary"


def planned_records(
    spark: SparkSession, options: Mapping[str, str], step: RowStep | None = None
) -> DataFrame:
    """The records as `spark.read.format("kafscale")` gives them; the options are the same (docs/spark-source.md).

    What is read is fixed by this call rather than by the first action. `step`: what each task does with its rows.
    Raises `SourceOptionError`, `SettingError`, and `KafscaleError` of every kind.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    parsed = parse_options(lowered)
    reader = BatchReader(settings_of(lowered, os.environ), parsed)
    records = spark_schema(parsed.include_headers)
    schema = records if step is None else step.schema(records)
    tasks = [(bytearray(pickle.dumps(task)),) for task in reader.partitions()]
    if not tasks:
        return spark.createDataFrame([], schema)
    frame = spark.createDataFrame(spark.sparkContext.parallelize(tasks, len(tasks)), _TASK)
    return frame.mapInArrow(_reading(reader, step), schema)


def _reading(
    reader: BatchReader, step: RowStep | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_work_between_tasks()
        for batch in batches:
            for packed in batch.column(0).to_pylist():
                rows = reader.read(pickle.loads(packed))
                yield from rows if step is None else step.batches(rows)

    return read
