"""Divides rows by the partitions of their table. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import TimestamptzType

from kafscale.lake.commit_errors import TableRefusedError

pc: Any = pyarrow.compute  # its functions are made when it is loaded

_ROW: Final = "row"
_EPOCH_YEAR: Final = 1970
_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One partition of a table, by its values: pyiceberg's record of it, and where its files are."""

    values: tuple[Any, ...]
    spec: PartitionSpec = field(compare=False)
    schema: Schema = field(compare=False)

    @property
    def partition(self) -> Record:
        """The values as manifests have them."""
        return Record(*self.values)

    def to_path(self) -> str:
        """The folder of the partition's files."""
        return str(self.spec.partition_to_path(self.partition, self.schema))


def divide(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """The rows of each partition. Raises `TableRefusedError` for a partitioning by a nested field."""
    names = [f"k{number}" for number in range(len(spec.fields))]
    keys = [_values(rows, one, schema) for one in spec.fields]
    numbered = pa.table([*keys, pa.array(range(rows.num_rows), pa.int64())], names=[*names, _ROW])
    groups = numbered.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
    for values in groups.to_pylist():
        key = PartitionKey(tuple(values[name] for name in names), spec, schema)
        yield key, rows.take(pa.array(values[f"{_ROW}_list"], pa.int64()))


def _values(rows: pa.Table, part: PartitionField, schema: Schema) -> pa.Array:
    name = schema.find_column_name(part.source_id)
    if name not in rows.column_names:
        raise TableRefusedError(
            f"the table is partitioned by {part.transform} of {name!r}, which this export does not bring: use the "
            "Spark job (python -m spark_jobs.export)"
        )
    column = rows.column(name).combine_chunks()
    source = schema.find_field(part.source_id).field_type
    if isinstance(source, TimestamptzType):
        return _of_times(column, part)
    if part.transform.__class__.__name__ == "IdentityTransform":
        return column
    transform = part.transform.transform(source)
    encoded = column.dictionary_encode()
    mapped = pa.array([transform(value) for value in encoded.dictionary.to_pylist()])
    return mapped.take(encoded.indices)


def _of_times(column: pa.Array, part: PartitionField) -> pa.Array:
    """The values without an object for each of the times, nearly all of which differ."""
    microseconds = column.cast(pa.int64())
    match part.transform:
        case HourTransform():
            return _floor_divided(microseconds, _HOUR_US)
        case DayTransform():
            return _floor_divided(microseconds, _DAY_US)
        case MonthTransform():
            years = pc.subtract(pc.year(column), _EPOCH_YEAR)
            return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1))
        case YearTransform():
            return pc.subtract(pc.year(column), _EPOCH_YEAR)
    transform = part.transform.transform(TimestamptzType())
    return pa.array([transform(value) for value in microseconds.to_pylist()], pa.int64())


def _floor_divided(values: pa.Array, by: int) -> pa.Array:
    """Arrow's division of integers rounds towards zero; times before 1970 are negative."""
    quotient = pc.divide(values, by)
    is_rounded_up = pc.and_(pc.less(values, 0), pc.not_equal(pc.multiply(quotient, by), values))
    return pc.subtract(quotient, is_rounded_up.cast(pa.int64()))
