"""Decodes the source's batches of rows where they are read: one pass in one process, from stored bytes to columns.

A row that is a dead letter says why, and has its bytes. The first ones of a task, as many as fit a bound, are marked:
they are few and small enough to come back to the driver with the task's outcome, so that nothing is read twice for
them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function  # type: ignore[attr-defined]
from pyspark.sql import types as st

from kafscale.arrow.columns import TIME_DOES_NOT_FIT
from spark_jobs.decoding.columns import ColumnFormat
from spark_jobs.decoding.dead_letters import ERROR, IS_KEPT, KEY_BYTES, VALUE_BYTES
from spark_jobs.decoding.text import TextFormat

NO_KEY = "key: is missing, and the table has one row for each key"
_ROW_BYTES = 200
"""Of a dead letter, beside its key and value: coordinates, reason, and what stands around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDecoding:
    """The decoding of the source's rows. Can be pickled.

    `value`, `key`: their formats, None for bytes. `kept_bytes`: how much of dead letters a task marks as kept.
    `requires_key`: a row without a key is a dead letter.
    """

    value: ColumnFormat | None = None
    key: TextFormat | None = None
    kept_bytes: int = 0
    requires_key: bool = False

    def schema(self, records: st.StructType) -> st.StructType:
        """The columns: those of the records with `key` and `value` decoded, and behind them those of dead letters.

        `value_bytes` and `key_bytes` (if keys are decoded) are null unless `error` says why the row is a dead letter.
        """
        decoded = {"value": self.value, "key": self.key}
        fields = [
            st.StructField(one.name, one.dataType if found is None else found.value_type, True)
            for one in records.fields
            for found in [decoded.get(one.name)]
        ]
        binary = [VALUE_BYTES] if self.key is None else [VALUE_BYTES, KEY_BYTES]
        fields += [st.StructField(name, st.BinaryType(), True) for name in binary]
        fields.append(st.StructField(ERROR, st.StringType(), True))
        fields.append(st.StructField(IS_KEPT, st.BooleanType(), True))
        return st.StructType(fields)

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The decoded batches of a task, row for row."""
        value = None if self.value is None else self.value.open()
        left = self.kept_bytes
        for batch in batches:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            errors = _timeless(columns["timestamp"])
            originals = {VALUE_BYTES: columns["value"].cast(pa.binary())}
            if self.requires_key:
                _put(errors, _keyless(columns["key"]))
            if self.key is not None:
                originals[KEY_BYTES] = columns["key"].cast(pa.binary())
                decoded = self.key.decode(originals[KEY_BYTES])
                columns["key"] = decoded.values
                _put(errors, decoded.errors)
            if value is not None:
                decoded = value.decode(originals[VALUE_BYTES])
                columns["value"] = decoded.values
                _put(errors, decoded.errors)
            dead = np.array([row for row, error in enumerate(errors) if error is not None], np.int64)
            kept, left = _kept(originals, dead, left)
            for name, column in originals.items():
                columns[name] = _only(column, dead)
            columns[ERROR] = pa.array(errors, pa.string())
            columns[IS_KEPT] = kept
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _timeless(times: pa.Array) -> list[str | None]:
    """The source has null for a time that does not fit, and for no other."""
    if not times.null_count:
        return [None] * len(times)
    return [TIME_DOES_NOT_FIT if is_null else None for is_null in times.is_null().to_pylist()]


def _keyless(keys: pa.Array) -> list[str | None]:
    if not keys.null_count:
        return []
    return [NO_KEY if is_null else None for is_null in keys.is_null().to_pylist()]


def _put(errors: list[str | None], found: list[str | None]) -> None:
    """One reason is enough for a dead letter: the value's, else the key's, else the timestamp's."""
    for row, error in enumerate(found):
        if error is not None:
            errors[row] = error


def _kept(originals: dict[str, pa.Array], dead: npt.NDArray[np.int64], left: int) -> tuple[pa.Array, int]:
    """True for dead letters that fit what is left, false for the others, null for rows; and what is left then."""
    count = len(originals[VALUE_BYTES])
    if not len(dead):
        return pa.nulls(count, pa.bool_()), left
    rows = pa.array(dead)
    sizes = np.full(len(dead), _ROW_BYTES, np.int64)
    for column in originals.values():
        lengths = call_function("binary_length", [column.take(rows)]).fill_null(0)
        sizes += lengths.to_numpy(zero_copy_only=False)
    fits = np.cumsum(sizes) <= left
    marks: list[bool | None] = [None] * count
    for row, is_kept in zip(dead.tolist(), fits.tolist(), strict=True):
        marks[row] = is_kept
    # After the first one that does not fit none is kept: the others would not be all there are.
    return pa.array(marks, pa.bool_()), left - int(sizes[fits].sum()) if fits.all() else 0


def _only(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """The column with null in all other rows."""
    if not len(rows):
        return pa.nulls(len(column), column.type)
    places = np.full(len(column), -1, np.int64)
    places[rows] = np.arange(len(rows))
    return column.take(pa.array(rows)).take(pa.array(places, mask=places < 0))
