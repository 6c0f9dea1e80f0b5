"""The data source with a step behind it, such as decoding, that runs where the rows are read.

Without it the rows go from the reader's process to the JVM and from there to another Python process and back, which
costs more than reading them. It is for jobs of this package: the step is an option, as code.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kafscale.lake.offset_points import SourceOptionError
from spark_jobs.source.batch_reader import BatchReader
from spark_jobs.source.data_source import KafscaleDataSource
from spark_jobs.source.row_step import RowStep
from spark_jobs.source.spark_api import DataSourceReader, InputPartition

NAME = "kafscale_stepped"
STEP = "step"

_pickler: Final[Any] = CloudPickleSerializer


def as_option(step: RowStep) -> str:
    """The step as the option `STEP`."""
    return base64.b64encode(_pickler().dumps(step)).decode()


class SteppedDataSource(KafscaleDataSource):
    """Topics, as `KafscaleDataSource` reads them, with a step behind. For batches only.

    Raises `SourceOptionError` without a step.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if name.lower() != STEP})
        given = next((value for name, value in options.items() if name.lower() == STEP), None)
        if given is None:
            raise SourceOptionError(f"format {NAME!r} is for the export only: read with format('kafscale')")
        self._step: RowStep = _pickler().loads(base64.b64decode(given))

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the step's outcome."""
        return self._step.schema(super().schema())

    def reader(self, schema: StructType) -> "SteppedReader":  # type: ignore[override]
        """For `spark.read`. Raises `SourceOptionError`, `SettingError`."""
        return SteppedReader(super().reader(super().schema()), self._step)


class SteppedReader(DataSourceReader):
    """The reader of a batch, and the step."""

    def __init__(self, reader: BatchReader, step: RowStep) -> None:
        self._reader = reader
        self._step = step

    def partitions(self) -> Sequence[InputPartition]:
        """See `BatchReader`."""
        return self._reader.partitions()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The split's rows behind the step."""
        return self._step.batches(self._reader.read(partition))


def load_stepped(spark: SparkSession, options: Mapping[str, str], step: RowStep) -> DataFrame:
    """The records of a batch behind the step; the options are those of docs/spark-source.md."""
    # A second time Spark would warn.
    if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(NAME):
        spark.dataSource.register(SteppedDataSource)
    return spark.read.format(NAME).options(**options, **{STEP: as_option(step)}).load()
