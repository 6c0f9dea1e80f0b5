"""Reading Avro: what fastavro writes comes out; what is no Avro has a reason that names the field."""

import io
import json
import math
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decoding.avro.column import AvroFormat
from spark_jobs.decoding.avro.model import AvroType, model_of
from spark_jobs.decoding.avro.schemas import AvroSchemas, read_schemas
from spark_jobs.decoding.options import Framing
from tests.spark_jobs.decoding.avro_values import Case, records


def written(schema: Any, value: object) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(json.loads(json.dumps(schema))), value)
    return target.getvalue()


def decoded(
    schemas: AvroSchemas | Any, data: bytes, framing: Framing = Framing.NONE
) -> tuple[object, str | None]:
    found = schemas if isinstance(schemas, AvroSchemas) else read_schemas(json.dumps(schemas), ())
    column = AvroFormat(schemas=found, framing=framing).open().decode(pa.array([data], pa.binary()))
    return column.values[0].as_py(), column.errors[0]


def plain(schema: Any, value: Any) -> Any:
    """A value of fastavro's as a column holds it."""
    match schema:
        case {"type": "record"}:
            return {field["name"]: plain(field["type"], value[field["name"]]) for field in schema["fields"]}
        case {"type": "array"}:
            return [plain(schema["items"], item) for item in value]
        case {"type": "map"}:
            return [(key, plain(schema["values"], item)) for key, item in value.items()]
        case ["null", "string", "long", "double"]:
            if value is None:
                return None
            members = {"member0": None, "member1": None, "member2": None}
            return members | {"member0" if isinstance(value, str) else "member2": value}
        case [_, _]:
            other = next(branch for branch in schema if branch != "null")
            return None if value is None else plain(other, value)
        case "float" | "double":
            return "NaN" if math.isnan(value) else value
        case _:
            return value


def without_nan(value: object) -> object:
    match value:
        case float():
            return "NaN" if math.isnan(value) else value
        case dict():
            return {name: without_nan(item) for name, item in value.items()}
        case list():
            return [without_nan(item) for item in value]
        case tuple():
            return tuple(map(without_nan, value))
        case _:
            return value


@given(data=st.data(), case=records())
def test_what_is_written_is_read(data: st.DataObject, case: Case) -> None:
    value = data.draw(case.values)
    found, error = decoded(case.schema, written(case.schema, value))
    assert error is None
    assert without_nan(found) == plain(case.schema, value)


@given(data=st.data(), case=records())
def test_a_value_is_read_whole_or_not_at_all(data: st.DataObject, case: Case) -> None:
    whole = written(case.schema, data.draw(case.values))
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + b"\0"):
        found, error = decoded(case.schema, broken)
        assert (found, error is None) == (None, False)


@given(garbage=st.binary(max_size=40), case=records(), framing=st.sampled_from(Framing))
def test_any_bytes_are_a_value_or_have_a_reason(garbage: bytes, case: Case, framing: Framing) -> None:
    found, error = decoded(case.schema, garbage, framing)
    assert (found is None) == (error is not None)
    assert error is None or error.startswith("value")


RECORD = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "n", "type": "int"},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
    ],
}
GOOD = b"\1\2\0\4\0"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "value: is empty, and no Avro"),
        (b"\1", "value.kind: is cut off: the value has 1 bytes, and more are needed"),
        (b"\2\2\0\4\0", "value.flag: is a boolean with byte 2; legal are 0 and 1"),
        (b"\1\4\0\4\0", "value.kind: has the symbol 2; legal are 0 to 1"),
        (b"\1\1\0\4\0", "value.kind: has the symbol -1; legal are 0 to 1"),
        (b"\1\2\4\4\0", "value.note: has the union branch 2; legal are 0 to 1"),
        (b"\1\2\3\4\0", "value.note: has the union branch -2; legal are 0 to 1"),
        (b"\1\2\2\2\xff\4\0", "value.note: is not UTF-8 at byte 0 of the string"),
        (b"\1\2\2\x0axy", "value.note: has the length 5, and 2 bytes are left"),
        (b"\1\2\2\1xy", "value.note: has the length -1, and 2 bytes are left"),
        (b"\1\2\0" + b"\xff" * 10 + b"\1", "value.n: is a number of more than 10 bytes"),
        (b"\1\2\0" + b"\xff" * 9 + b"\2", "value.n: is a number of more than 64 bits"),
        (b"\1\2\0\xfe\xff\xff\xff\xff\1", "value.n: is 34359738367, and an int has 32 bits"),
        (
            b"\1\2\0\4\4\0\2\2k1234567",
            "value.lines[1].k: is cut off: the value has 16 bytes, and more are needed",
        ),
        (b"\1\2\0\4\2\4\2k12345678\2k", "value.lines[0].k: stands twice in its map"),
        (
            b"\1\2\0\4" + b"\xfe\xff\xff\xff\x1f",
            "value.lines: has a block of 4294967295 items, and 0 bytes are left",
        ),
        (b"\1\2\0\4\1\x7f\0", "value.lines: has a block of -64 bytes, and 1 are left"),
        (GOOD + b"xyz", "value: ends at byte 5, and 3 bytes follow"),
        (
            b"\0\0\0\0\7" + GOOD,
            "value.lines: has a block of -1 bytes, and 4 are left (its first byte is 0: is it framed by a "
            "serializer of Confluent's?)",
        ),
    ],
)
def test_reasons_name_field_and_problem(data: bytes, reason: str) -> None:
    """fastavro reads some of these: negative indexes from the end, any byte as a boolean, numbers of any length."""
    assert decoded(RECORD, GOOD)[1] is None
    assert decoded(RECORD, data) == (None, reason)


def test_blocks_may_say_their_length() -> None:
    schema = {"type": "array", "items": "long"}
    assert decoded(schema, b"\x03\x04\x02\x04\x02\x06\x00") == ([1, 2, 3], None)


def test_items_without_bytes_are_bounded() -> None:
    """A few bytes could say that there are 2^60 nulls."""
    reader = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": ["null", "int"], "default": None}],
    }
    writer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "b", "type": {"type": "array", "items": "null"}}, {"name": "c", "type": "int"}],
    }
    found = read_schemas(json.dumps(reader), ())
    by_id = AvroSchemas(reader=found.reader, writers={1: model(writer)})
    many = b"\0\0\0\0\1" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x1f" + b"\0\0"
    assert decoded(by_id, many, Framing.CONFLUENT)[1] == (
        "value.b: has a block of 1152921504606846975 items, and 2 bytes are left"
    )
    assert decoded(by_id, b"\0\0\0\0\1" + b"\x10\0\0", Framing.CONFLUENT) == ({"a": None}, None)


def varint(number: int) -> bytes:
    """The encoding of a number that is not negative, as long as Avro writes it."""
    target = io.BytesIO()
    schemaless_writer(target, "long", number)
    return target.getvalue()


@pytest.mark.parametrize(
    ("items", "data", "reason"),
    [
        ("null", varint(1000) * 3000 + b"\0", "value.a: has 1000 items in 2 bytes"),
        (
            {"type": "array", "items": "null"},
            varint(3000) + (varint(6000) + b"\0") * 3000 + b"\0",
            "value.a[0]: has 6000 items in 2 bytes",
        ),
        (
            {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]},
            varint(10) + varint(9) + b"\0",
            "value.a: has 19 items in 2 bytes",
        ),
    ],
)
def test_blocks_without_bytes_do_not_add_up(items: Any, data: bytes, reason: str) -> None:
    """Every block alone is within the bytes that are left; all of them were 2,000 times the value's size."""
    writer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": items}}],
    }
    reader = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "default": 7}]}
    schemas = AvroSchemas(reader=read_schemas(json.dumps(reader), ()).reader, writers={1: model(writer)})
    tracemalloc.start()
    try:
        found, error = decoded(schemas, b"\0\0\0\0\1" + data, Framing.CONFLUENT)
        assert (found, error) == (None, reason)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_sixteen_items_may_have_no_bytes() -> None:
    schema = {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}
    assert decoded(schema, varint(10) + varint(6) + b"\0") == ([b""] * 16, None)
    assert decoded(schema, varint(10) + varint(9) + b"\0") == (None, "value: has 19 items in 2 bytes")


def model(schema: Any) -> AvroType:
    named: dict[str, Any] = {}
    return model_of(parse_schema(schema, named_schemas=named), named, "test")
