"""Bad values among good ones: they are found without reading the good ones again, and cost what they cost alone."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from spark_jobs.decoding.columns import DecodedColumn, array_of, decode_each
from spark_jobs.decoding.json import blocks, inference
from spark_jobs.decoding.json import column as json_column
from spark_jobs.decoding.json import text_walk as walk
from spark_jobs.decoding.json.column import JsonDecoder, JsonFormat
from spark_jobs.decoding.json.parser import parse
from spark_jobs.decoding.json.suspects import Suspects
from spark_jobs.decoding.options import Framing
from tests.spark_jobs.decoding.json_texts import DATA
from tests.spark_jobs.support.guarded_memory import GuardedMemory

ORDER = (
    spark.StructType()
    .add("id", "long", nullable=False)
    .add("price", "decimal(9,2)")
    .add("weight", "double")
    .add("at", "timestamp")
    .add("day", "date")
    .add("active", "boolean")
    .add("tags", spark.ArrayType(spark.StringType()))
    .add("address", spark.StructType().add("city", "string"))
)
GOOD = {
    "id": 1,
    "price": 12.5,
    "weight": 1.5e3,
    "at": "2024-05-31T10:00:00.123Z",
    "day": "2024-05-31",
    "active": True,
    "tags": ["a", "\u20ac", 'q"', None],
    "address": {"city": "Springfield"},
}
BAD = [
    b"{",
    b'{"id": 1',
    b'{"id": 1}}',
    b'{"id": 1} {"id": 2}',
    b'{"id": "x"}',
    b'{"id": 1.5}',
    b'{"id": 9223372036854775808}',
    b'{"id": null}',
    b"{}",
    b'{"id": 1, "id": 2}',
    b'{"id": 01}',
    b'{"id": 1, "price": 1.234}',
    b'{"id": 1, "price": "x"}',
    b'{"id": 1, "weight": "heavy"}',
    b'{"id": 1, "weight": 1e400}',
    b'{"id": 1, "at": "2024-13-31T10:00:00Z"}',
    b'{"id": 1, "at": "soon"}',
    b'{"id": 1, "day": "2024-05-31T10:00:00"}',
    b'{"id": 1, "active": 1}',
    b'{"id": 1, "tags": "a"}',
    b'{"id": 1, "tags": [1, {}]}'[:-2],
    b'{"id": 1, "address": []}',
    b'{"id": 1, "address": {"city": "\xff"}}',
    b'{"id": 1, "address": {"city": "\\ud800"}}',
    b'{"id": 1, "address": {"city": "\n"}}',
]


class Reads:
    """Counts what is read in blocks, and what one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_blocks = self.one_by_one = 0
        read = blocks.read

        def read_block(column: pa.Array, *arguments: object, **named: object) -> pa.Table | None:
            self.in_blocks += len(column)
            return read(column, *arguments, **named)  # type: ignore[arg-type]

        def read_each(column: pa.Array, *arguments: object) -> DecodedColumn:
            self.one_by_one += len(column)
            return decode_each(column, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(blocks, "read", read_block)
        monkeypatch.setattr(json_column, "decode_each", read_each)


@pytest.mark.parametrize("inferred", [False, True])
@pytest.mark.parametrize("every", [1000, 100, 10])
def test_bad_values_cost_in_proportion(monkeypatch: pytest.MonkeyPatch, every: int, inferred: bool) -> None:
    count = 10_000
    good = json.dumps(GOOD).encode()
    values = [BAD[row // every % len(BAD)] if row % every == every // 2 else good for row in range(count)]
    bad = count // every
    reads = Reads(monkeypatch)
    decoded = JsonDecoder(JsonFormat(data_type=ORDER, inferred=inferred, framing=Framing.NONE)).decode(
        pa.array(values, pa.binary())
    )
    assert [row for row, error in enumerate(decoded.errors) if error] == [
        row for row in range(count) if row % every == every // 2
    ]
    # The last block may be too small for one.
    assert bad <= reads.one_by_one <= bad + 16
    # Once, and once in vain for the first block that has one.
    assert reads.in_blocks <= 2 * count


def test_inference_divides_no_block_for_a_value_that_is_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"a": 1, "b": {"c": "x"}}'] * 5000
    values[100::500] = [b'{"a": 1, "b": {"c": "x"'] * 10
    values[200::500] = [b'{"a": tru}'] * 10
    reads = Reads(monkeypatch)
    parsed = 0

    def counted(data: bytes) -> object:
        nonlocal parsed
        parsed += 1
        return parse(data)

    monkeypatch.setattr("spark_jobs.decoding.json.inference.parse", counted)
    inference.observe_column(pa.array(values, pa.binary()), Framing.NONE, exact_digits=False)
    assert parsed == 20
    assert reads.in_blocks <= 2 * len(values)


def test_good_values_are_not_suspect() -> None:
    column = pa.array([json.dumps(GOOD).encode(), b'{ "id" : 2 , "more" : [ { } , -1.5e-3, "\\u00e9" ] }'])
    for keeps_unknown in (False, True):
        suspects = Suspects(ORDER, keeps_unknown=keeps_unknown)
        assert suspects.among(column, np.arange(2)).tolist() == [False, keeps_unknown]


def test_a_field_that_holds_nothing_is_no_news() -> None:
    column = pa.array(
        [b'{"id": 1, "x": null, "y": [[], {"z": null}]}', b'{"id": 1, "ID": null}', b'{"id": 1, "x": 0}']
    )
    assert Suspects(ORDER, keeps_unknown=True).among(column, np.arange(3)).tolist() == [False, True, True]


MEMORY = GuardedMemory(4096)


@given(data=DATA | st.sampled_from([json.dumps(GOOD).encode(), *BAD]), cut=st.integers(0, 200))
def test_nothing_behind_a_value_is_read(data: bytes, cut: int) -> None:
    """It stands right before a page that ends the process."""
    content = data[: max(0, len(data) - cut % (len(data) + 1))][:4096]
    memory = np.frombuffer(MEMORY.holding(content), np.uint8)
    for suspects in (Suspects(ORDER, keeps_unknown=True), Suspects(None, keeps_unknown=False)):
        marks, bounds = np.zeros(1, np.bool_), np.array([[0, len(content)]])
        walk.mark_suspects(
            memory.ctypes.data,
            bounds.ctypes.data,
            1,
            suspects._nodes.ctypes.data,
            suspects._fields.ctypes.data,
            suspects._levels.ctypes.data,
            marks.ctypes.data,
        )
        try:
            json.loads(content)
        except ValueError:
            assert marks[0], "it is no JSON"


def test_a_value_that_arrow_refuses_is_found_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[object] = list(range(1000))
    values[300] = 1 << 70
    errors: list[str | None] = [None] * 1000
    tried = 0
    array = pa.array

    def counted(items: list[object], *arguments: object) -> pa.Array:
        nonlocal tried
        tried += len(items)
        return array(items, *arguments)

    monkeypatch.setattr("spark_jobs.decoding.columns.pa.array", counted)
    stored = array_of(values, errors, pa.int64(), pa.int64())
    assert [row for row, error in enumerate(errors) if error] == [300]
    assert stored.null_count == 1
    assert tried < 6000
