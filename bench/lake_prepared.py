"""A stand-in for a data source that costs nothing: Arrow batches made once, handed to Spark again and again.

What remains is the cost of any data source in Python for Spark itself: batches over a socket, rows out of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafscale.arrow.columns import arrow_schema
from spark_jobs.source.columns import spark_schema

NAME = "prepared"
_BATCH_BYTES = 1_000_000


@dataclass(frozen=True)
class PreparedPart(InputPartition):
    """One task of `records` records."""

    partition: int
    records: int


class PreparedSource(DataSource):
    """Options: `records`, `recordBytes`, `partitions`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(include_headers=True)

    def reader(self, schema: StructType) -> "PreparedReader":
        return PreparedReader(
            records=int(self.options["records"]),
            record_bytes=int(self.options["recordBytes"]),
            partitions=int(self.options["partitions"]),
        )


class PreparedReader(DataSourceReader):
    """The number of batches, all of the same records."""

    def __init__(self, *, records: int, record_bytes: int, partitions: int) -> None:
        self._records = records
        self._record_bytes = record_bytes
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        each = self._records // self._partitions
        return [PreparedPart(partition=number, records=each) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PreparedPart)
        batch = self._batch(max(1, _BATCH_BYTES // self._record_bytes), partition.partition)
        left = partition.records
        while left:
            rows = min(left, batch.num_rows)
            yield batch.slice(0, rows)
            left -= rows

    def _batch(self, rows: int, partition: int) -> pa.RecordBatch:
        schema = arrow_schema(include_headers=True)
        columns = {
            "key": [b"key-%012d" % row for row in range(rows)],
            "value": [b"x" * self._record_bytes] * rows,
            "topic": ["prepared"] * rows,
            "partition": [partition] * rows,
            "offset": list(range(rows)),
            "timestamp": [1_700_000_000_000_000] * rows,
            "timestampType": [0] * rows,
            "headers": [None] * rows,
        }
        return pa.RecordBatch.from_arrays(
            [pa.array(columns[field.name], field.type) for field in schema], schema=schema
        )
