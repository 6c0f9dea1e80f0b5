"""Reading JSON in blocks with Arrow says of every value what reading it by itself says."""

import math
from functools import reduce

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from spark_jobs.decoding.columns import DecodedColumn, decode_each
from spark_jobs.decoding.json import column as json_column
from spark_jobs.decoding.json.column import JsonDecoder, JsonFormat
from spark_jobs.decoding.json.evolution import evolved
from spark_jobs.decoding.json.inference import observe_column
from spark_jobs.decoding.json.observed import Observed, join
from spark_jobs.decoding.options import Framing
from tests.spark_jobs.decoding.json_texts import DATA, OBJECTS
from tests.spark_jobs.decoding.spark_types import STRUCTS

ROWS = 17
"""Enough values for a block."""


def parts_of(column: pa.Array) -> list[pa.Array]:
    return [column[start : start + ROWS] for start in range(0, len(column), ROWS)]


def decoder_of(data_type: spark.DataType, *, inferred: bool, in_blocks: bool) -> JsonDecoder:
    decoder = JsonDecoder(JsonFormat(data_type=data_type, inferred=inferred, framing=Framing.NONE))
    if not in_blocks:
        decoder._schema = None
    return decoder


def comparable(value: object) -> object:
    """NaN equals itself, and 0 has no sign: a whole -0 is one to Arrow and 0 to Python."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case dict():
            return {name: comparable(item) for name, item in value.items()}
        case list() | tuple():
            return [comparable(item) for item in value]
        case _:
            return value


def rows(decoded: DecodedColumn) -> list[object]:
    return [
        (comparable(value), error)
        for value, error in zip(decoded.values.to_pylist(), decoded.errors, strict=True)
    ]


@given(
    data_type=STRUCTS,
    values=st.lists(DATA | st.none(), max_size=8),
    inferred=st.booleans(),
    seen=st.booleans(),
)
def test_blocks_agree_with_single_values(
    data_type: spark.DataType, values: list[bytes | None], inferred: bool, seen: bool
) -> None:
    """Every value fills a block of its own, and stands in one with the others."""
    column = pa.array([value for value in values for _ in range(ROWS)] + values * ROWS, pa.binary())
    if seen:
        data_type = evolved(None, observe_column(column[:ROWS], Framing.NONE, exact_digits=True), 50)
    in_blocks = [
        decoder_of(data_type, inferred=inferred, in_blocks=True).decode(part) for part in parts_of(column)
    ]
    one_by_one = decoder_of(data_type, inferred=inferred, in_blocks=False).decode(column)
    assert [row for decoded in in_blocks for row in rows(decoded)] == rows(one_by_one)
    assert all(decoded.values.type == one_by_one.values.type for decoded in in_blocks)
    for value, decoded, error in zip(
        column.to_pylist(), one_by_one.values.to_pylist(), one_by_one.errors, strict=True
    ):
        assert error is None or decoded is None
        assert value is not None or error is None


@given(values=st.lists(OBJECTS.map(str.encode), min_size=1, max_size=6), known=st.none() | STRUCTS)
def test_types_are_the_same_however_values_are_looked_at(
    values: list[bytes], known: spark.DataType | None
) -> None:
    """In blocks, one by one, in another order, and joined from parts; and every value then decodes or says why."""
    column = pa.array([value for value in values for _ in range(ROWS)], pa.binary())

    def observed(column: pa.Array, *, exact: bool) -> Observed:
        return observe_column(column, Framing.NONE, exact_digits=exact)

    exact = observed(column, exact=True)
    data_type = evolved(known, exact, 50)
    has_decimals = known is not None and "decimal" in known.simpleString()
    if not has_decimals:
        assert (
            evolved(known, reduce(join, [observed(part, exact=False) for part in parts_of(column)]), 50)
            == data_type
        )
    assert evolved(known, observed(column[::-1], exact=True), 50) == data_type
    assert evolved(data_type, exact, 50) == data_type, "nothing is new any more"
    decoder = decoder_of(data_type, inferred=True, in_blocks=True)
    decoded = decoder_of(data_type, inferred=True, in_blocks=False).decode(column)
    assert [row for part in parts_of(column) for row in rows(decoder.decode(part))] == rows(decoded)
    for value, row, error in zip(column.to_pylist(), decoded.values.to_pylist(), decoded.errors, strict=True):
        assert row is not None or error is not None or value == b"{}" or isinstance(data_type, spark.NullType)


def test_a_block_with_few_odd_values_is_still_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one bad value would make a thousand others slow."""
    one_by_one = 0

    def counted(column: pa.Array, *arguments: object) -> DecodedColumn:
        nonlocal one_by_one
        one_by_one += len(column)
        return decode_each(column, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(json_column, "decode_each", counted)
    values = [b'{"a": %d}' % number for number in range(5000)]
    values[700] = b'{"a": "x"}'
    values[4000] = b"no JSON"
    decoder = decoder_of(spark.StructType().add("a", "long"), inferred=True, in_blocks=True)
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist() == [None if row in (700, 4000) else {"a": row} for row in range(5000)]
    assert [row for row, error in enumerate(decoded.errors) if error] == [700, 4000]
    assert one_by_one < 200


def test_lists_that_begin_with_null_are_inferred_whole() -> None:
    """Arrow gives arrays with too few values for them, and reading such ends the process."""
    column = pa.array([b'{"a": [null, 1]}', b'{"a": [null]}', b'{"a": []}'] * ROWS, pa.binary())
    observed = observe_column(column, Framing.NONE, exact_digits=False)
    data_type = evolved(None, observed, 50)
    assert data_type.simpleString() == "struct<a:array<bigint>>"
    # The field is unexpected when it is decoded: its list is inferred there, too.
    decoded = decoder_of(spark.StructType().add("b", "long"), inferred=True, in_blocks=True).decode(column)
    assert [error is None for error in decoded.errors] == [False, True, True] * ROWS


@pytest.mark.parametrize(
    "value", [b"null", b"[1]", b"5", b"", b"{", b"}", b"[" * 50_000, b'{"a":' * 50_000 + b"}"]
)
def test_arrow_is_not_given_what_ends_the_process(value: bytes) -> None:
    """It crashes on a null beside objects, and recurses as deep as values are nested."""
    rows = ROWS if len(value) < 100 else 2
    column = pa.array([value, b'{"a": 1}'] * rows, pa.binary())
    observed = observe_column(column, Framing.NONE, exact_digits=False)
    assert evolved(None, observed, 50).simpleString() == "struct<a:bigint>"
    decoded = decoder_of(spark.StructType().add("a", "long"), inferred=True, in_blocks=True).decode(column)
    assert decoded.values.to_pylist() == [None, {"a": 1}] * rows
