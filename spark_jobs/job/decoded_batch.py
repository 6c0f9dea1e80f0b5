"""The decoded records of one batch, read from the store once wherever that can be."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, FloatType, NullType, StructType

from spark_jobs.decoding.decoder import key_format, with_variants
from spark_jobs.decoding.formats import fixed_format, inferred_format, is_inferred, observed_in
from spark_jobs.decoding.json.evolution import evolved
from spark_jobs.decoding.json.inference import observe_column
from spark_jobs.decoding.json.observed import Observed
from spark_jobs.decoding.options import ValueFormat, ValueOptions
from spark_jobs.decoding.row_decoding import RowDecoding
from spark_jobs.decoding.types import parts
from spark_jobs.job.batch_records import BatchRecords, stepped
from spark_jobs.job.kept_letters import KeptLetters

_KEPT_BYTES: Final = 32 * 1024 * 1024
"""About how much of dead letters may come back to the driver, in a batch."""
_TASK_BYTES: Final = 32 * 1024 * 1024
"""Half of the source's splits. Tasks of many small partitions read less, down to a quarter of this."""


class DecodedBatch:
    """A batch's records as the table wants them. `known`: the type of the table's values. `restricted`: a type that
    was inferred, as the table can have it.

    JSON without a schema is decoded by the type that is known; `grow` then looks at what did not fit. Only where no
    type is known yet, all is looked at first, and kept on the executors' disks until `close`.
    """

    def __init__(
        self,
        options: ValueOptions,
        records: BatchRecords,
        known: DataType | None,
        restricted: Callable[[DataType], DataType] = lambda one: one,
    ) -> None:
        self._options = options
        # Schemas of a registry: tasks report the ids that they miss.
        self._records = records if options.source is None else records.apart()
        self._known = known
        self._restricted = restricted
        # What Spark has is decoded again for its dead letters: it may be one of many tables.
        self._kept_bytes = 0 if records.is_kept else _KEPT_BYTES // max(1, records.size_bytes // _TASK_BYTES)
        self._cached: DataFrame | None = None
        self._kept: DataFrame | None = None
        self._value_type: DataType | None = None
        if is_inferred(options):
            self._value_type = known
            if known is None or any(isinstance(part, NullType | FloatType) for part in parts(known)):
                # A number that fits a float is one that makes it a double: all must be looked at.
                self._look_at_all()

    def _look_at_all(self) -> None:
        seen = self._records.open(None)
        if not self._records.is_kept:
            seen = seen.persist(StorageLevel.DISK_ONLY)
            self._kept = seen
        self._cached = seen
        try:
            self._value_type = self._evolved(observed_in(seen, self._options, self._known))
        except BaseException:
            self.close()
            raise

    def decoded(self) -> DataFrame:
        """The records with the columns of `RowDecoding`."""
        if self._value_type is None:
            value = fixed_format(self._options)
        else:
            value = inferred_format(self._options, self._value_type)
        step = RowDecoding(
            value=value,
            key=key_format(self._options),
            kept_bytes=self._kept_bytes,
            requires_key=self._options.requires_key,
        )
        decoded = self._records.open(step) if self._cached is None else stepped(self._cached, step)
        return with_variants(decoded) if self._options.format is ValueFormat.JSON_VARIANT else decoded

    def grow(self, letters: KeptLetters) -> bool:
        """True if the values that did not fit make the type grow: what was decoded is out of date then."""
        if self._value_type is None or self._cached is not None or not letters.count:
            return False
        if letters.is_complete:
            values = pa.array([one.value for one in letters.rows], pa.binary())
            has_decimals = any(part.typeName() == "decimal" for part in parts(self._value_type))
            found = observe_column(values, self._options.framing, exact_digits=has_decimals)
        else:
            found = observed_in(self._records.open(None), self._options, self._known)
        grown = self._evolved(found)
        if grown == self._value_type:
            return False
        self._value_type = grown
        return True

    def close(self) -> None:
        """Free what was kept."""
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None

    def _evolved(self, found: Observed) -> DataType:
        return self._restricted(evolved(self._known, found, self._options.max_fields))


def columns_known(rows: DataFrame) -> StructType:
    """The columns that have a type: values whose type is not known yet have no column until it is."""
    return StructType([one for one in rows.schema if not isinstance(one.dataType, NullType)])
