"""A step behind the rows of a reader, which runs in the process that reads them."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import StructType


class RowStep(Protocol):
    """Makes other rows of the source's; can be pickled."""

    def schema(self, records: StructType) -> StructType:
        """The columns of the outcome."""
        ...

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The outcome of a task's batches, with exactly these columns."""
        ...
