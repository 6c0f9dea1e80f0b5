"""The records of one batch as Spark opens them, with or without a step behind the reader."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import DataFrame

from kafscale.lake.ranges import Ranges
from spark_jobs.source.row_step import RowStep


class OpenRecords(Protocol):
    """Opens the topic's records at these offsets, by partition, with the data source's columns or the step's."""

    def __call__(self, ranges: Mapping[int, Ranges], step: RowStep | None = None) -> DataFrame:
        """The records, read when the data frame is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecords:
    """The records of a batch. `open`: a data frame of them, or of what the step makes of them.

    `size_bytes`: as stored. `is_kept`: Spark has them, so that they can be read again without the topic.
    """

    open: Callable[[RowStep | None], DataFrame]
    size_bytes: int = 0
    is_kept: bool = False

    def apart(self) -> "BatchRecords":
        """The same with steps in Python processes behind the reader's: inside of it accumulators do not work."""
        return replace(self, open=functools.partial(_apart, self.open))


def records_in(frame: DataFrame, *, size_bytes: int = 0, is_kept: bool = False) -> BatchRecords:
    """The records of a data frame that has the data source's columns."""
    return BatchRecords(open=functools.partial(stepped, frame), size_bytes=size_bytes, is_kept=is_kept)


def stepped(records: DataFrame, step: RowStep | None) -> DataFrame:
    """The records of a data frame behind the step, in Python processes of their own."""
    return records if step is None else records.mapInArrow(step.batches, step.schema(records.schema))


def _apart(opened: Callable[[RowStep | None], DataFrame], step: RowStep | None) -> DataFrame:
    return stepped(opened(None), step)
