"""Decodes a column of JSON values: blocks with Arrow's reader where possible, other values one by one."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow.compute import MatchSubstringOptions, call_function  # type: ignore[attr-defined]
from pyspark.sql import types as st

from spark_jobs.decoding.columns import ColumnDecoder, DecodedColumn, decode_each
from spark_jobs.decoding.framing import unframed_text
from spark_jobs.decoding.json import blocks
from spark_jobs.decoding.json.parser import parse
from spark_jobs.decoding.json.shaping import reading_schema, shaped
from spark_jobs.decoding.json.values import converter
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.problems import UndecodableError
from spark_jobs.decoding.types import arrow_type, nullable

if TYPE_CHECKING:
    from spark_jobs.decoding.json.suspects import Suspects

# Inferring costs cells for each name and each object in a block, which for keys used as names is quadratic.
_MAX_INFERRED_BYTES = 64 * 1024
_MAX_READ_BYTES = 16 * 1024 * 1024
_SPLIT = 8
_FEW_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFormat:
    """JSON values of `data_type`. `inferred`: fields beyond the type are problems instead of being dropped."""

    data_type: st.DataType
    inferred: bool
    framing: Framing

    @property
    def value_type(self) -> st.DataType:
        """The type, with every level optional."""
        return nullable(self.data_type)

    def open(self) -> ColumnDecoder:
        """A decoder for this process."""
        return JsonDecoder(self)


class JsonDecoder:
    """Decodes columns of JSON values."""

    def __init__(self, json_format: JsonFormat) -> None:
        self._data_type = json_format.data_type
        self._arrow_type = arrow_type(json_format.value_type)
        self._framing = json_format.framing
        self._convert = converter(json_format.data_type, drop_unknown=not json_format.inferred)
        self._schema = reading_schema(json_format.data_type)
        self._unexpected = "infer" if json_format.inferred else "ignore"
        self._max_bytes = _MAX_INFERRED_BYTES if json_format.inferred else _MAX_READ_BYTES
        self._is_inferred = json_format.inferred
        self._is_wary = False

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode a column of type binary; never raises for a value."""
        column, errors = unframed(column, self._framing)
        if self._schema is None:
            return self._finish([self._one_by_one(column, errors, None)], errors, len(column))
        found: list[tuple[blocks.Rows, pa.Array]] = []
        fine = blocks.eligible(column, self._max_bytes)
        rest = np.flatnonzero(~fine)
        if len(rest):
            found.append(self._one_by_one(column, errors, rest))
        for rows in sized_blocks(column, np.flatnonzero(fine), self._max_bytes):
            self._decode_block(column, rows, found, errors)
        return self._finish(found, errors, len(column))

    def _decode_block(
        self,
        column: pa.Array,
        rows: blocks.Rows,
        found: list[tuple[blocks.Rows, pa.Array]],
        errors: list[str | None],
    ) -> None:
        """Read the rows at once; if that cannot be, without those that are to blame, which are read one by one."""
        if not self._is_wary:
            values = None if len(rows) <= _FEW_ROWS else self._read(taken(column, rows))
            if values is not None:
                found.append((rows, values))
                return
        suspect = self._suspects.among(column, rows)
        # Where there were some, the next block has some, too, and would be read in vain.
        self._is_wary = bool(suspect.any())
        if self._is_wary:
            found.append(self._one_by_one(column, errors, rows[suspect]))
        if not suspect.all():
            self._divide(column, rows[~suspect], found, errors)

    def _divide(
        self,
        column: pa.Array,
        rows: blocks.Rows,
        found: list[tuple[blocks.Rows, pa.Array]],
        errors: list[str | None],
    ) -> None:
        """Read the rows at once, or those parts of them that can be, and the other rows one by one."""
        values = None if len(rows) <= _FEW_ROWS else self._read(taken(column, rows))
        if values is not None:
            found.append((rows, values))
        elif len(rows) <= _FEW_ROWS:
            found.append(self._one_by_one(column, errors, rows))
        else:
            for part in np.array_split(rows, _SPLIT):
                self._divide(column, part, found, errors)

    @cached_property
    def _suspects(self) -> "Suspects":
        # Imported when a block first needs it: its code is compiled, or loaded, then.
        from spark_jobs.decoding.json.suspects import Suspects

        assert isinstance(self._data_type, st.StructType), "only objects are read in blocks"
        return Suspects(self._data_type, keeps_unknown=self._is_inferred)

    def _read(self, column: pa.Array) -> pa.Array | None:
        table = blocks.read(column, self._schema, unexpected=self._unexpected)
        if table is None or not isinstance(self._data_type, st.StructType):
            return None
        values = shaped(table, self._data_type)
        return None if values is None or blocks.has_inexact(values) else values

    def _one_by_one(
        self, column: pa.Array, errors: list[str | None], rows: blocks.Rows | None
    ) -> tuple[blocks.Rows, pa.Array]:
        rows = np.arange(len(column)) if rows is None else rows
        decoded = decode_each(taken(column, rows), self._decode_value, self._arrow_type)
        for row, error in zip(rows, decoded.errors, strict=True):
            if error is not None:
                errors[row] = error
        return rows, decoded.values

    def _decode_value(self, data: bytes) -> object:
        value = parse(data)
        return None if value is None else self._convert(value)

    def _finish(
        self, found: list[tuple[blocks.Rows, pa.Array]], errors: list[str | None], count: int
    ) -> DecodedColumn:
        if not count:
            return DecodedColumn(values=pa.nulls(0, self._arrow_type), errors=errors)
        rows = np.concatenate([rows for rows, _ in found])
        values = pa.concat_arrays([array for _, array in found])
        if (np.diff(rows) < 0).any():
            values = values.take(pa.array(np.argsort(rows)))
        return DecodedColumn(values=values, errors=errors)


def sized_blocks(column: pa.Array, rows: blocks.Rows, max_bytes: int) -> list[blocks.Rows]:
    """`rows` in runs of at most `max_bytes` of values (a longer value is a run of its own)."""
    if not len(rows):
        return []
    lengths = call_function("binary_length", [column]).to_numpy(zero_copy_only=False)[rows]
    groups = (np.cumsum(lengths) // max_bytes).astype(np.int64)
    return np.split(rows, np.flatnonzero(np.diff(groups)) + 1)


def taken(column: pa.Array, rows: blocks.Rows) -> pa.Array:
    """These rows of a column; no copy if they are neighbours."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return column.slice(int(rows[0]), len(rows))
    return column.take(pa.array(rows))


def unframed(column: pa.Array, framing: Framing) -> tuple[pa.Array, list[str | None]]:
    """The column without Confluent's framing, and a reason (and a null) for each value that lacks it."""
    errors: list[str | None] = [None] * len(column)
    if framing is Framing.NONE or (framing is Framing.AUTO and not _any_magic(column)):
        return column, errors
    values = column.to_pylist()
    for row, data in enumerate(values):
        if data is not None:
            try:
                values[row] = unframed_text(data, framing)
            except UndecodableError as problem:
                values[row], errors[row] = None, problem.reason()
    return pa.array(values, pa.binary()), errors


def _any_magic(column: pa.Array) -> bool:
    starts = call_function("starts_with", [column], MatchSubstringOptions(b"\0"))
    return bool(call_function("any", [starts]).as_py())
