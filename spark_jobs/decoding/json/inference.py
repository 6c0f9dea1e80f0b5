"""Observes the types in a column of JSON values: in blocks where Arrow's reader can read them."""

import json
from collections.abc import Iterable, Iterator
from functools import cache, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function  # type: ignore[attr-defined]

from spark_jobs.decoding.json import blocks
from spark_jobs.decoding.json import observed as seen
from spark_jobs.decoding.json.column import sized_blocks, taken, unframed
from spark_jobs.decoding.json.observed import NOTHING, Observed, from_plain, join, observe, to_plain
from spark_jobs.decoding.json.parser import parse
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.problems import UndecodableError

if TYPE_CHECKING:
    from spark_jobs.decoding.json.suspects import Suspects

_MAX_BLOCK_BYTES = 64 * 1024
_INT_LIMIT = 1 << 31
_FEW_ROWS = 16
_SPLIT = 8


def observe_column(column: pa.Array, framing: Framing, *, exact_digits: bool) -> Observed:
    """All kinds of the values of a column of type binary. Values that are not JSON are ignored.

    `exact_digits`: also how many digits whole numbers have, which takes a look at each.
    """
    column, _ = unframed(column, framing)
    if exact_digits:
        return _one_by_one(column)
    fine = blocks.eligible(column, _MAX_BLOCK_BYTES)
    found = _one_by_one(taken(column, np.flatnonzero(~fine)))
    for rows in sized_blocks(column, np.flatnonzero(fine), _MAX_BLOCK_BYTES):
        found = join(found, _observe_block(column, rows))
    return found


def observe_batches(
    batches: Iterable[pa.RecordBatch], framing: Framing, *, exact_digits: bool
) -> Iterator[str]:
    """For `mapInArrow`: the types observed in the first column of a task's batches, as one text."""
    found = NOTHING
    for batch in batches:
        column = batch.column(0).cast(pa.binary())
        found = join(found, observe_column(column, framing, exact_digits=exact_digits))
    yield json.dumps(to_plain(found))


def joined(texts: Iterable[str]) -> Observed:
    """The types that all tasks observed."""
    return reduce(join, (from_plain(json.loads(text)) for text in texts), NOTHING)


def _observe_block(column: pa.Array, rows: blocks.Rows) -> Observed:
    if len(rows) <= _FEW_ROWS:
        return _one_by_one(taken(column, rows))
    found = _observe_at_once(column, rows)
    if found is not None:
        return found
    suspect = _suspects().among(column, rows)
    return join(_one_by_one(taken(column, rows[suspect])), _observe_parts(column, rows[~suspect]))


def _observe_parts(column: pa.Array, rows: blocks.Rows) -> Observed:
    if len(rows) <= _FEW_ROWS:
        return _one_by_one(taken(column, rows))
    found = _observe_at_once(column, rows)
    if found is not None:
        return found
    return reduce(join, (_observe_parts(column, part) for part in np.array_split(rows, _SPLIT)), NOTHING)


def _observe_at_once(column: pa.Array, rows: blocks.Rows) -> Observed | None:
    table = blocks.read(taken(column, rows), None, unexpected="infer")
    return None if table is None else _of_table(table)


@cache
def _suspects() -> "Suspects":
    # Imported when a block first needs it: its code is compiled, or loaded, then.
    from spark_jobs.decoding.json.suspects import Suspects

    return Suspects(None, keeps_unknown=False)


def _one_by_one(column: pa.Array) -> Observed:
    found = NOTHING
    for data in column.to_pylist():
        if data is not None:
            try:
                value = parse(data)
            except UndecodableError:
                continue  # a dead letter, with its reason, when it is decoded
            found = join(found, observe(value))
    return found


def _of_table(table: pa.Table) -> Observed | None:
    """None if Arrow's types are not precise enough: then each value is parsed."""
    fields = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        found = _of_array(column.combine_chunks(), 1)
        if found is None:
            return None
        fields[name] = found
    return Observed(kinds=frozenset({seen.STRUCT}), fields=fields)


def _of_array(array: pa.Array, depth: int) -> Observed | None:
    kind = array.type
    if pa.types.is_struct(kind):
        return _of_structs(array, depth)
    if pa.types.is_list(kind):
        if depth >= seen.MAX_TYPE_DEPTH:
            return None
        element = _of_array(array.values, depth + 1)
        return None if element is None else Observed(kinds=frozenset({seen.ARRAY}), element=element)
    if pa.types.is_integer(kind):
        low, high = call_function("min_max", [array]).values()
        in_int = low.as_py() >= -_INT_LIMIT and high.as_py() < _INT_LIMIT
        return Observed(kinds=frozenset({seen.INT if in_int else seen.LONG}))
    if pa.types.is_floating(kind):
        return _of_doubles(array)
    if pa.types.is_boolean(kind):
        return Observed(kinds=frozenset({seen.BOOLEAN}))
    if pa.types.is_null(kind):
        return NOTHING
    return Observed(kinds=frozenset({seen.STRING}))  # texts, and those that Arrow takes for timestamps


def _of_structs(array: pa.Array, depth: int) -> Observed | None:
    if depth >= seen.MAX_TYPE_DEPTH:
        return None
    fields = {}
    for index in range(array.type.num_fields):
        found = _of_array(array.field(index), depth + 1)
        if found is None:
            return None
        fields[array.type.field(index).name] = found
    return Observed(kinds=frozenset({seen.STRUCT}), fields=fields)


def _of_doubles(array: pa.Array) -> Observed | None:
    """Whole numbers may be among them: only small ones, which are doubles as well as ints, add no kind."""
    numbers = array.drop_null().to_numpy(zero_copy_only=False)
    small = bool((np.abs(numbers) < _INT_LIMIT).all())
    return Observed(kinds=frozenset({seen.DOUBLE})) if small else None
