"""Reads many JSON objects at once with Arrow's compiled reader, where its result surely equals `parser`'s.

Arrow's reader is strict where Spark's is not: it refuses repeated names, half surrogate pairs, anything that is
not JSON, and numbers that a column cannot hold. What it would let through is kept from it here.
"""

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function  # type: ignore[attr-defined]
from pyarrow.json import ParseOptions, ReadOptions, read_json  # type: ignore[attr-defined]

from spark_jobs.decoding.json.parser import MAX_DEPTH

Rows = npt.NDArray[np.int64]

_OPEN_BRACE, _CLOSE_BRACE = b"{"[0], b"}"[0]
# Arrow also accepts Inf and -NaN, which are not JSON.
_NOT_FINITE = re.compile(rb"[:\[,\s]-?(?:Inf|NaN)")
_LARGEST_EXACT = {pa.float32(): float(1 << 24), pa.float64(): float(1 << 53)}


def eligible(column: pa.Array, max_value_bytes: int) -> npt.NDArray[np.bool_]:
    """The rows of a column of type binary that may be given to `read`.

    A value that begins and ends with a brace and is read without an error is one row, whatever lies around it:
    Arrow takes a newline only between tokens. Nesting is bounded because Arrow's reader recurses.
    """
    offsets, data = layout(column)
    starts, ends = offsets[:-1], offsets[1:]
    lengths = ends - starts
    fine = (lengths > 1) & (lengths <= max_value_bytes) & ~_is_null(column)
    fine[fine] = (data[starts[fine]] == _OPEN_BRACE) & (data[ends[fine] - 1] == _CLOSE_BRACE)
    for row in np.flatnonzero(fine & (lengths >= 2 * MAX_DEPTH)).tolist():
        value = data[starts[row] : ends[row]].tobytes()
        fine[row] = value.count(b"{") + value.count(b"[") <= MAX_DEPTH
    return fine


def read(column: pa.Array, schema: pa.Schema | None, *, unexpected: str) -> pa.Table | None:
    """The objects in `column` (no nulls) as a table with one row each; None if Arrow cannot or must not read them.

    `unexpected`: `ignore` drops fields that the schema does not name, `infer` adds them as columns.
    """
    size = column.nbytes + len(column)
    try:
        column.cast(pa.string())
        joined = call_function("binary_join", [pa.ListArray.from_arrays([0, len(column)], column), b"\n"])[
            0
        ].as_buffer()
        if _has_odd_numbers(joined):
            return None
        table = read_json(
            pa.BufferReader(joined),
            read_options=ReadOptions(use_threads=False, block_size=size + 1),
            parse_options=ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
        # Arrow loses the nulls before the first other item of a list whose type it infers, and such an array is
        # not valid: its last offset lies behind its values.
        table.validate(full=True)
    except pa.ArrowException:
        return None
    return table.combine_chunks() if table.num_rows == len(column) else None


def has_inexact(array: pa.Array) -> bool:
    """True if a float in it is not finite, or so large that a whole number may have been rounded."""
    kind = array.type
    if pa.types.is_struct(kind):
        return any(has_inexact(array.field(index)) for index in range(kind.num_fields))
    if pa.types.is_list(kind):
        return has_inexact(array.values)
    if kind not in _LARGEST_EXACT:
        return False
    numbers = array.drop_null().to_numpy(zero_copy_only=False)
    return not bool((np.abs(numbers) < _LARGEST_EXACT[kind]).all())


def _has_odd_numbers(joined: pa.Buffer) -> bool:
    text = joined.to_pybytes()
    return (b"Inf" in text or b"NaN" in text) and _NOT_FINITE.search(text) is not None


def layout(column: pa.Array) -> tuple[Rows, npt.NDArray[np.uint8]]:
    """Offsets and bytes of a column of type binary."""
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    found = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return found.astype(np.int64), content


def _is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
