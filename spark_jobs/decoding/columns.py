"""Decodes a column of bytes into a column of values, with a reason for each value that does not decode."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import DataType

from spark_jobs.decoding.problems import UndecodableError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedColumn:
    """Values and reasons, one of each for every row: a row with a reason has a null value."""

    values: pa.Array
    errors: list[str | None]


class ColumnDecoder(Protocol):
    """Decodes columns; made in the process that uses it."""

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode a column of type binary. A null decodes to null and has no reason. Never raises for a value."""
        ...


class ColumnFormat(Protocol):
    """A format as the driver sends it to executors: it can be pickled."""

    @property
    def value_type(self) -> DataType:
        """The type of a decoded value."""
        ...

    def open(self) -> ColumnDecoder:
        """A decoder for this process."""
        ...


def decode_each(
    column: pa.Array,
    decode: Callable[[bytes], object],
    arrow_type: pa.DataType,
    stored_as: pa.DataType | None = None,
) -> DecodedColumn:
    """Decode each value alone. `decode` raises `UndecodableError`.

    What it gives must be what `pyarrow.array` takes for `stored_as` (by default `arrow_type`), which is then
    cast to `arrow_type`.
    """
    values: list[object] = []
    errors: list[str | None] = []
    for data in column.to_pylist():
        value, error = None, None
        if data is not None:
            try:
                value = decode(data)
            except UndecodableError as problem:
                error = problem.reason()
            except MemoryError:
                raise  # the process's trouble, not the value's
            except Exception as defect:  # noqa: BLE001 - one value must never stop a topic
                error = UndecodableError(
                    f"cannot be decoded: {type(defect).__name__}: {shown(defect)}"
                ).reason()
        values.append(value)
        errors.append(error)
    return DecodedColumn(values=array_of(values, errors, stored_as or arrow_type, arrow_type), errors=errors)


def array_of(
    values: list[object], errors: list[str | None], stored_as: pa.DataType, arrow_type: pa.DataType
) -> pa.Array:
    """`values` as an Arrow array. A value that Arrow refuses becomes null and gets its reason in `errors`."""
    try:
        return _array(values, stored_as, arrow_type)
    except _REFUSALS:
        _refuse_in(values, errors, range(len(values)), stored_as, arrow_type)
    return _array(values, stored_as, arrow_type)


def _refuse_in(
    values: list[object],
    errors: list[str | None],
    rows: range,
    stored_as: pa.DataType,
    arrow_type: pa.DataType,
) -> None:
    """Look for the values that Arrow refuses, by halves: a few of them cost little."""
    try:
        _array(values[rows.start : rows.stop], stored_as, arrow_type)
    except _REFUSALS as problem:
        if len(rows) == 1:
            errors[rows.start] = UndecodableError(f"cannot be stored: {shown(str(problem))}").reason()
            values[rows.start] = None
        else:
            middle = len(rows) // 2
            _refuse_in(values, errors, rows[:middle], stored_as, arrow_type)
            _refuse_in(values, errors, rows[middle:], stored_as, arrow_type)


_REFUSALS = (pa.ArrowException, ValueError, TypeError, OverflowError)


def _array(values: Sequence[object], stored_as: pa.DataType, arrow_type: pa.DataType) -> pa.Array:
    array = pa.array(values, stored_as)
    return array if stored_as == arrow_type else array.cast(arrow_type)
