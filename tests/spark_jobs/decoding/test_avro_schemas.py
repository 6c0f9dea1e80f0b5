"""Schemas of Avro values: their types, how one reads what another wrote, and what cannot be used."""

import datetime
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kafscale.errors import SettingError
from spark_jobs.decoding.avro.column import AvroFormat
from spark_jobs.decoding.avro.schemas import AvroSchemas, read_schemas
from spark_jobs.decoding.options import Framing
from tests.spark_jobs.decoding.test_avro_reading import decoded, written

UTC = datetime.UTC


def record(**types: Any) -> dict[str, Any]:
    """A record with these fields; a tuple is a type and a default."""
    fields = [
        {"name": name, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": name, "type": kind}
        for name, kind in types.items()
    ]
    return {"type": "record", "name": "R", "fields": fields}


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


FIXED_UUID = logical("fixed", "uuid", name="U", size=16)
DECIMAL = logical("bytes", "decimal", precision=9, scale=2)
FIXED_DECIMAL = logical("fixed", "decimal", name="D", size=4, precision=9, scale=2)


@pytest.mark.parametrize(
    ("kind", "given", "spark", "expected"),
    [
        (logical("int", "date"), datetime.date(2024, 5, 31), "date", datetime.date(2024, 5, 31)),
        (logical("int", "time-millis"), 5, "int", 5),
        (logical("long", "time-micros"), 5, "bigint", 5),
        (logical("long", "timestamp-millis"), 1500, "timestamp", datetime.datetime.fromtimestamp(1.5, UTC)),
        (
            logical("long", "timestamp-micros"),
            1500000,
            "timestamp",
            datetime.datetime.fromtimestamp(1.5, UTC),
        ),
        (logical("long", "timestamp-nanos"), 1500, "bigint", 1500),
        (
            logical("long", "local-timestamp-millis"),
            -1,
            "timestamp_ntz",
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
        ),
        (
            logical("long", "local-timestamp-micros"),
            1,
            "timestamp_ntz",
            datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
        ),
        (logical("string", "uuid"), "no uuid at all", "string", "no uuid at all"),
        (FIXED_UUID, uuid.UUID(int=5).bytes, "string", str(uuid.UUID(int=5))),
        (DECIMAL, Decimal("-1234567.89"), "decimal(9,2)", Decimal("-1234567.89")),
        (FIXED_DECIMAL, Decimal("0.01"), "decimal(9,2)", Decimal("0.01")),
        (logical("fixed", "duration", name="P", size=12), b"123456789012", "binary", b"123456789012"),
        (logical("int", "unheard-of"), 5, "int", 5),
        (logical("string", "date"), "x", "string", "x"),
        (["null", "int", "long"], 5, "bigint", 5),
        (["float", "double"], 0.5, "double", 0.5),
        (
            ["null", "string", "int"],
            "x",
            "struct<member0:string,member1:int>",
            {"member0": "x", "member1": None},
        ),
        (["string"], "x", "string", "x"),
    ],
)
def test_logical_types_and_unions_are_columns_as_for_spark(
    kind: Any, given: Any, spark: str, expected: Any
) -> None:
    schema = record(f=kind)
    schemas = read_schemas(json.dumps(schema), ())
    value_type = AvroFormat(schemas=schemas, framing=Framing.NONE).value_type
    assert value_type.simpleString() == f"struct<f:{spark}>"
    assert decoded(schemas, written(without_logical(schema, given), {"f": given})) == ({"f": expected}, None)


def without_logical(schema: Any, given: Any) -> Any:
    """fastavro turns numbers of some logical types into dates before it writes them; here numbers are given."""
    kind = schema["fields"][0]["type"]
    if isinstance(kind, dict) and isinstance(given, int | str | bytes):
        kind = {name: value for name, value in kind.items() if name != "logicalType"}
        return record(f=kind)
    return schema


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        (record(a="int"), record(a="long"), {"a": 1}, {"a": 1}),
        (record(a="int"), record(a="double"), {"a": 1}, {"a": 1.0}),
        (record(a="float"), record(a="double"), {"a": 0.5}, {"a": 0.5}),
        (record(a="string"), record(a="bytes"), {"a": "x"}, {"a": b"x"}),
        (record(a="bytes"), record(a="string"), {"a": b"x"}, {"a": "x"}),
        (record(a="int"), record(a=["null", "long"]), {"a": 1}, {"a": 1}),
        (record(a=["null", "int"]), record(a="int"), {"a": 1}, {"a": 1}),
        (record(a="int", b="string"), record(b="string", a="int"), {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
        (
            record(a="int", gone={"type": "array", "items": "string"}),
            record(a="int"),
            {"a": 1, "gone": ["x"]},
            {"a": 1},
        ),
        (record(a="int"), record(a="int", b=("string", "new")), {"a": 1}, {"a": 1, "b": "new"}),
        (record(a="int"), record(a="int", b=(["null", "string"], None)), {"a": 1}, {"a": 1, "b": None}),
        (
            record(a="int"),
            record(a="int", b=(DECIMAL, "\u0001\u0000")),
            {"a": 1},
            {"a": 1, "b": Decimal("2.56")},
        ),
        (
            record(a="int"),
            record(a="int", b=(record(c=("int", 7)) | {"name": "S"}, {})),
            {"a": 1},
            {"a": 1, "b": {"c": 7}},
        ),
        (
            record(a="int"),
            record(a="int", b=(["null", "string", "int"], None)),
            {"a": 1},
            {"a": 1, "b": None},
        ),
        (
            record(a="int"),
            record(a=["string", "long", "null"]),
            {"a": 1},
            {"a": {"member0": None, "member1": 1}},
        ),
        (
            record(a=logical("long", "timestamp-millis")),
            record(a=logical("long", "timestamp-micros")),
            {"a": datetime.datetime.fromtimestamp(1.5, UTC)},
            {"a": datetime.datetime.fromtimestamp(1.5, UTC)},
        ),
        (
            record(a={"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            record(a={"type": "enum", "name": "E", "symbols": ["A", "X"], "default": "X"}),
            {"a": "B"},
            {"a": "X"},
        ),
        (
            record(old="int") | {"name": "a.Old"},
            {"type": "record", "name": "R", "fields": [{"name": "new", "type": "long", "aliases": ["old"]}]},
            {"old": 5},
            {"new": 5},
        ),
    ],
)
def test_what_one_schema_wrote_another_reads(
    tmp_path: Path, writer: Any, reader: Any, value: Any, expected: Any
) -> None:
    (tmp_path / "v7.avsc").write_text(json.dumps(writer))
    (tmp_path / "reader.avsc").write_text(json.dumps(reader))
    schemas = read_schemas(None, [f"7={tmp_path / 'v7.avsc'}", str(tmp_path / "reader.avsc")])
    framed = b"\0\0\0\0\7" + written(writer, value)
    assert decoded(schemas, framed, Framing.CONFLUENT) == (expected, None)
    assert decoded(schemas, framed, Framing.AUTO) == (expected, None)


def test_each_value_is_read_by_its_id(tmp_path: Path) -> None:
    for number, schema in ((7, record(a="int")), (9, record(b="string", a="long"))):
        (tmp_path / f"v{number}.avsc").write_text(json.dumps(schema))
    files = [f"{number}={tmp_path}/v{number}.avsc" for number in (7, 9)]
    schemas = read_schemas(json.dumps(record(a="long", b=("string", "-"))), files)
    seven, nine = (
        written(record(a="int"), {"a": 1}),
        written(record(b="string", a="long"), {"b": "x", "a": 2}),
    )
    assert decoded(schemas, b"\0\0\0\0\7" + seven, Framing.CONFLUENT) == ({"a": 1, "b": "-"}, None)
    assert decoded(schemas, b"\0\0\0\0\x09" + nine, Framing.CONFLUENT) == ({"a": 2, "b": "x"}, None)
    assert decoded(schemas, b"\0\0\0\0\x08" + seven, Framing.CONFLUENT) == (
        None,
        "value: has the schema id 8, and schemas are given for 7, 9",
    )
    assert decoded(schemas, seven, Framing.CONFLUENT) == (
        None,
        "value: begins with byte 2, and Confluent's framing begins with magic byte 0",
    )


def test_a_branch_that_the_reader_lacks_fails_its_values_only(tmp_path: Path) -> None:
    (tmp_path / "w.avsc").write_text(json.dumps(record(a=["int", "string"])))
    schemas = read_schemas(json.dumps(record(a="long")), [f"1={tmp_path}/w.avsc"])
    header = b"\0\0\0\0\1"
    assert decoded(schemas, header + written(record(a=["int", "string"]), {"a": 5}), Framing.AUTO) == (
        {"a": 5},
        None,
    )
    assert decoded(schemas, header + written(record(a=["int", "string"]), {"a": "x"}), Framing.AUTO) == (
        None,
        "value.a: is string: string cannot be read as long",
    )


def test_a_value_that_reads_framed_and_plain_is_not_guessed() -> None:
    schema = {"type": "array", "items": "int"}
    plain = b"\x02\x0a\0"
    assert decoded(schema, plain, Framing.AUTO) == ([5], None)
    assert decoded(schema, b"\0\0\0\0\7" + plain, Framing.AUTO) == ([5], None)
    zeros = record(a="int", b=["null", "bytes"])
    ambiguous = b"\0\2\x06\0\0" + b"\0\0"  # 0 and three bytes; or an id, 0 and null
    assert decoded(zeros, b"\0\2\x06\1\2\3", Framing.AUTO) == ({"a": 0, "b": b"\1\2\3"}, None)
    assert decoded(zeros, ambiguous[:4] + b"\0\0", Framing.AUTO)[1] is None
    assert decoded(zeros, b"\0\2\x08\0\0\0\0", Framing.AUTO)[1] == (
        "value: can be read with and without Confluent's framing: say which by option"
    )
    assert decoded(zeros, b"\0\2\x08\0\0\0\0", Framing.CONFLUENT) == ({"a": 0, "b": None}, None)
    assert decoded(zeros, b"\0\2\x08\0\0\0\0", Framing.NONE) == ({"a": 0, "b": bytes(4)}, None)


def test_values_that_a_column_cannot_hold_say_so() -> None:
    assert decoded(record(f=DECIMAL), b"\x0a\x7f\xff\xff\xff\xff") == (
        None,
        "value.f: is a decimal of more than 9 digits",
    )
    millis = record(f=logical("long", "timestamp-millis"))
    assert decoded(millis, written(record(f="long"), {"f": 2**62})) == (
        None,
        f"value.f: is {2**62}, which a timestamp cannot hold",
    )


def test_named_types_come_from_files_before(tmp_path: Path) -> None:
    (tmp_path / "address.avsc").write_text(json.dumps(record(city="string") | {"name": "shop.Address"}))
    (tmp_path / "order.avsc").write_text(json.dumps(record(to="shop.Address", by="shop.Address")))
    schemas = read_schemas(None, [str(tmp_path / "address.avsc"), str(tmp_path / "order.avsc")])
    assert isinstance(schemas, AvroSchemas)
    assert decoded(schemas, b"\x02x\x02y") == ({"to": {"city": "x"}, "by": {"city": "y"}}, None)


SOURCE = "value schema: "


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "{",
            f"{SOURCE}line 1, column 2: Expecting property name enclosed in double quotes; legal is an Avro schema",
        ),
        ('"nope"', f"{SOURCE}the type 'nope' is not known; legal are Avro's types"),
        ("5", f"{SOURCE}is no Avro schema: "),
        ('{"type": "array"}', f"{SOURCE}is no Avro schema: KeyError: 'items'"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', f"{SOURCE}is no Avro schema: "),
        (json.dumps(record(a="null")), f"{SOURCE}the type void has no values; legal are boolean, "),
        (json.dumps(record()), f"{SOURCE}a struct without fields cannot be stored; legal are "),
        (
            json.dumps(record(a="int", A="int")),
            f"{SOURCE}the fields 'a' and 'A' differ only in case; legal are ",
        ),
        (json.dumps(record(a=["null", "R"])), f"{SOURCE}record R contains itself, which no column can hold"),
        (
            json.dumps(record(a=logical("bytes", "decimal", precision=50, scale=2))),
            f"{SOURCE}decimal(50, 2) cannot be stored; legal is a precision of 1 to 38",
        ),
    ],
)
def test_schemas_that_cannot_be_used_say_why(schema: str, message: str) -> None:
    with pytest.raises(SettingError) as raised:
        read_schemas(schema, ())
    assert str(raised.value).startswith(message)


def test_a_field_named_twice_is_refused() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]
    with pytest.raises(SettingError, match="record R has two fields of one name"):
        read_schemas(json.dumps({"type": "record", "name": "R", "fields": fields}), ())


@pytest.mark.parametrize(
    ("writer", "problem"),
    [
        (record(b="int"), "value.a: is not written, and has no default to read instead"),
        (record(a="string"), "value.a: string cannot be read as int"),
        (record(a="long"), "value.a: long cannot be read as int"),
        (record(a=["null", "string"]), "value.a: null cannot be read as int; string cannot be read as int"),
    ],
)
def test_writers_that_can_never_be_read_are_refused(tmp_path: Path, writer: Any, problem: str) -> None:
    (tmp_path / "w.avsc").write_text(json.dumps(writer))
    with pytest.raises(SettingError) as raised:
        read_schemas(json.dumps(record(a="int")), [f"3={tmp_path}/w.avsc"])
    assert str(raised.value) == f"the schema of id 3 cannot be read with value schema: {problem}"


def test_files_that_cannot_be_used_say_which(tmp_path: Path) -> None:
    good = tmp_path / "good.avsc"
    good.write_text('"string"')
    (tmp_path / "empty.avsc").touch()
    (tmp_path / "binary.avsc").write_bytes(b"\xff")
    (tmp_path / "broken.avsc").write_text('{\n "type": ]')
    refusals = {
        "missing.avsc": "cannot be read",
        "empty.avsc": "is empty",
        "binary.avsc": "is not UTF-8 at byte 0",
        "broken.avsc": "line 2, column 10",
        ".": "cannot be read",
    }
    for name, problem in refusals.items():
        with pytest.raises(SettingError, match=problem) as raised:
            read_schemas(None, [str(tmp_path / name)])
        assert str(raised.value).startswith(f"schema file {str(tmp_path / name)!r}: ")
    for files, problem in (
        ([], "has no schema to read with"),
        ([f"7={good}"], "has no schema to read with"),
        ([str(good), f"7={good}", f"7={good}"], "id 7 has a schema already"),
        ([str(good), f"9999999999={good}"], "id 9999999999 is too large; legal is 0 to 2147483647"),
    ):
        with pytest.raises(SettingError, match=problem):
            read_schemas(None, files)
