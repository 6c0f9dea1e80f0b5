"""Decoding of the source's batches: columns, reasons, and the dead letters that may come back to the driver."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from kafscale.arrow.columns import TIME_DOES_NOT_FIT, arrow_schema
from kafscale.lake.offset_points import SourceOptionError
from spark_jobs.decoding.json.column import JsonFormat
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.row_decoding import RowDecoding
from spark_jobs.decoding.text import TextFormat
from spark_jobs.decoding.types import arrow_type
from spark_jobs.source.columns import spark_schema
from spark_jobs.source.stepped_source import STEP, SteppedDataSource, as_option

JSON = JsonFormat(data_type=spark.StructType().add("id", "long"), inferred=False, framing=Framing.NONE)


def records(*rows: tuple[bytes | None, bytes | None, int | None]) -> pa.RecordBatch:
    """Of keys, values and times in microseconds."""
    return pa.RecordBatch.from_pylist(
        [
            {"key": key, "value": value, "topic": "t", "partition": 0, "offset": offset, "timestamp": time}
            for offset, (key, value, time) in enumerate(rows)
        ],
        schema=arrow_schema(include_headers=True),
    )


def decoded(step: RowDecoding, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    found = list(step.batches(batches))
    columns = step.schema(spark_schema(include_headers=True))
    for batch, of in zip(found, batches, strict=True):
        assert batch.num_rows == of.num_rows
        assert batch.schema.names == columns.names
        for field in columns:
            if field.name != "headers":
                assert batch.schema.field(field.name).type == arrow_type(field.dataType), field.name
    return [row for batch in found for row in batch.to_pylist()]


def test_reasons_and_the_bytes_of_dead_letters() -> None:
    step = RowDecoding(value=JSON, key=TextFormat(name="key"), kept_bytes=10_000)
    rows = decoded(
        step,
        records(
            (b"k", b'{"id": 1}', 5),
            (b"\xff", b'{"id": 2}', 5),
            (b"\xff", b"{", None),
            (None, None, 5),
            (b"k", b'{"id": 3}', None),
        ),
    )
    assert [(row["key"], row["value"]) for row in rows[:2]] == [("k", {"id": 1}), (None, {"id": 2})]
    assert [row["error"] for row in rows] == [
        None,
        "key: is not UTF-8",
        "value: is not JSON: Expecting property name enclosed in double quotes at character 1",
        None,
        TIME_DOES_NOT_FIT,
    ]
    assert [(row["key_bytes"], row["value_bytes"]) for row in rows] == [
        (None, None),
        (b"\xff", b'{"id": 2}'),
        (b"\xff", b"{"),
        (None, None),
        (b"k", b'{"id": 3}'),
    ]
    assert [row["is_kept"] for row in rows] == [None, True, True, None, True]


def test_what_is_kept_of_a_task_is_bounded() -> None:
    step = RowDecoding(value=TextFormat(), kept_bytes=3 * 200 + 30)
    batch = records((None, b"\xff" * 10, 0), (None, b"good", 0), (None, b"\xff" * 10, 0))
    assert [row["is_kept"] for row in decoded(step, batch, batch, batch)] == [
        *(True, None, True),
        *(True, None, False),
        # None after the first one that does not fit: they would not be all.
        *(False, None, False),
    ]


def test_bytes_stay_bytes() -> None:
    (row,) = decoded(RowDecoding(), records((b"\xff", b"\xfe", 0)))
    assert (row["key"], row["value"], row["error"]) == (b"\xff", b"\xfe", None)
    assert "key_bytes" not in row


@given(values=st.lists(st.none() | st.binary(max_size=4) | st.text(max_size=4).map(str.encode), max_size=8))
def test_text_is_what_python_decodes(values: list[bytes | None]) -> None:
    found = TextFormat().decode(pa.array(values, pa.binary()))
    for value, text, error in zip(values, found.values.to_pylist(), found.errors, strict=True):
        try:
            assert (text, error) == (None if value is None else value.decode(), None)
        except UnicodeDecodeError:
            assert (text, error) == (None, "value: is not UTF-8")


def test_a_step_travels_as_an_option(tmp_path: Any) -> None:
    step = RowDecoding(value=JSON, key=TextFormat(name="key"), kept_bytes=1)
    options = {"dataDir": str(tmp_path), "subscribe": "t", STEP.upper(): as_option(step)}
    source = SteppedDataSource(options)
    assert source.schema() == step.schema(spark_schema(include_headers=True))
    reader = source.reader(source.schema())
    assert list(reader.read(None)) == []
    with pytest.raises(SourceOptionError, match="is for the export only"):
        SteppedDataSource({"subscribe": "t"})
