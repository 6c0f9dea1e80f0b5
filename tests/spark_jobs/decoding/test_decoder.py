"""Decoding with Spark: the columns that come out, in every format, and the dead letters."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from kafscale.errors import SettingError
from spark_jobs.decoding.dead_letters import dead_letter_columns
from spark_jobs.decoding.decoder import open_decoder
from spark_jobs.decoding.options import Framing, KeyFormat, ValueFormat, ValueOptions
from spark_jobs.source.columns import spark_schema
from tests.spark_jobs.decoding.test_protobuf import EMPTY_ORDER, SHOP


def records(spark: SparkSession, *values: bytes | None, headers: bool = True) -> DataFrame:
    """Records with these values; the last one's key is no text."""
    rows: list[tuple[Any, ...]] = []
    schema = spark_schema(headers)
    for offset, value in enumerate(values):
        row: dict[str, Any] = {
            "key": bytearray(b"\xff" if offset == len(values) - 1 else b"k"),
            "value": None if value is None else bytearray(value),
            "topic": "t",
            "partition": 3,
            "offset": offset,
            "timestamp": None,
            "timestampType": 0,
            "headers": [("h", bytearray(b"\0"))],
        }
        rows.append(tuple(row[name] for name in schema.names))
    return spark.createDataFrame(rows, schema).coalesce(1)


def by_offset(decoded: DataFrame) -> list[tuple[Any, str | None]]:
    rows = decoded.select("offset", "value", "error").collect()
    return [
        (row.value.asDict(True) if isinstance(row.value, st.Row) else row.value, row.error)
        for row in sorted(rows, key=lambda row: row.offset)
    ]


def test_inferred_json_grows_from_batch_to_batch(spark: SparkSession) -> None:
    options = ValueOptions(format=ValueFormat.JSON)
    nothing = records(spark, None, b"{}", b"{")
    decoder = open_decoder(options, spark, nothing, None)
    assert decoder.value_type == st.NullType()
    assert by_offset(decoder.decode(nothing))[:2] == [(None, None), (None, None)]

    first = records(spark, b'{"a": 1}', None, b'{"b": [{"c": "x"}], "n": null}', b"oops")
    decoder = open_decoder(options, spark, first, None)
    known = decoder.value_type
    assert known.simpleString() == "struct<a:bigint,b:array<struct<c:string>>>"
    decoded = decoder.decode(first)
    assert decoded.columns == [*first.columns, "value_bytes", "error"]
    assert decoded.schema["value"].dataType == known
    assert by_offset(decoded) == [
        ({"a": 1, "b": None}, None),
        (None, None),
        ({"a": None, "b": [{"c": "x"}]}, None),
        (None, "value: is not JSON: Expecting value at character 0"),
    ]

    second = records(spark, b'{"a": 2.5, "b": []}', b'{"A": 7, "b": [{"c": "y", "d": true}]}')
    decoder = open_decoder(options, spark, second, known)
    assert decoder.value_type.simpleString() == "struct<a:bigint,b:array<struct<c:string,d:boolean>>>"
    assert by_offset(decoder.decode(second)) == [
        (None, "value.a: is 2.5, and not a whole number from -9223372036854775808 to 9223372036854775807"),
        ({"a": 7, "b": [{"c": "y", "d": True}]}, None),
    ]


def test_dead_letters_hold_everything_as_it_was(spark: SparkSession) -> None:
    batch = records(spark, b'{"a": 1}', b'{"a": "x"}', None)
    options = ValueOptions(format=ValueFormat.JSON, key_format=KeyFormat.STRING, schema="a INT")
    decoder = open_decoder(options, spark, batch, None)
    assert (decoder.key_type, decoder.value_type.simpleString()) == (st.StringType(), "struct<a:int>")
    decoded = decoder.decode(batch)
    assert decoded.columns == [*batch.columns, "value_bytes", "error", "key_bytes"]
    letters = dead_letter_columns(decoded)
    assert letters.columns == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "key",
        "value",
        "headers",
        "error",
    ]
    assert [tuple(row) for row in letters.orderBy("offset").collect()] == [
        (
            "t",
            3,
            1,
            None,
            0,
            bytearray(b"k"),
            bytearray(b'{"a": "x"}'),
            [st.Row(key="h", value=bytearray(b"\0"))],
            "value.a: is 'x', and not a whole number from -2147483648 to 2147483647",
        ),
        (
            "t",
            3,
            2,
            None,
            0,
            bytearray(b"\xff"),
            None,
            [st.Row(key="h", value=bytearray(b"\0"))],
            "key: is not UTF-8",
        ),
    ]


def test_text_and_bytes(spark: SparkSession) -> None:
    batch = records(spark, "€".encode(), b"\xff", b"", None, headers=False)
    text = open_decoder(ValueOptions(format=ValueFormat.STRING), spark, batch, None)
    assert by_offset(text.decode(batch)) == [
        ("€", None),
        (None, "value: is not UTF-8"),
        ("", None),
        (None, None),
    ]
    assert "headers" not in dead_letter_columns(text.decode(batch)).columns
    plain = open_decoder(ValueOptions(), spark, batch, None)
    assert plain.value_type == plain.key_type == st.BinaryType()
    assert by_offset(plain.decode(batch)) == [
        (bytearray("€".encode()), None),
        (bytearray(b"\xff"), None),
        (bytearray(), None),
        (None, None),
    ]


def test_avro_and_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(json.loads(json.dumps(schema))), {"a": 5})
    batch = records(spark, target.getvalue(), b"\0\0\0\0\7" + target.getvalue(), b"\4", None)
    decoder = open_decoder(
        ValueOptions(format=ValueFormat.AVRO, schema=json.dumps(schema)), spark, batch, None
    )
    assert by_offset(decoder.decode(batch)) == [
        ({"a": 5}, None),
        ({"a": 5}, None),
        (None, "value.a: has the union branch 2; legal are 0 to 1"),
        (None, None),
    ]

    (tmp_path / "shop.desc").write_bytes(SHOP)
    options = ValueOptions(
        format=ValueFormat.PROTOBUF, schema_files=(str(tmp_path / "shop.desc"),), message="shop.Order"
    )
    batch = records(spark, b"\x08\x05", b"\x12\x01\xff", None)
    decoder = open_decoder(options, spark, batch, None)
    found = by_offset(decoder.decode(batch))
    assert found[0] == (EMPTY_ORDER | {"id": 5, "counts": {}, "by_number": {}}, None)
    assert found[1:] == [(None, "value.name: is not UTF-8 at byte 0 of the string"), (None, None)]


def test_settings_that_do_not_go_together_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    batch = records(spark, None)
    path = tmp_path / "type.json"
    path.write_text('{"type": "struct", "fields": [{"name": "a"}]}')
    json_format, avro, protobuf = ValueFormat.JSON, ValueFormat.AVRO, ValueFormat.PROTOBUF
    refused: list[tuple[ValueOptions, str]] = [
        (ValueOptions(schema="a INT"), "value format bytes: takes no schema"),
        (ValueOptions(framing=Framing.CONFLUENT), "value format bytes: takes no framing confluent"),
        (ValueOptions(format=json_format, message="M"), "value format json: takes no message name"),
        (
            ValueOptions(format=json_format, schema="a INT", schema_files=("x",)),
            "value format json: has more than one",
        ),
        (ValueOptions(format=json_format, max_fields=0), "max fields 0: legal is 1 to "),
        (ValueOptions(format=protobuf, schema="a INT"), "value format protobuf: takes no schema as text"),
        (ValueOptions(format=protobuf), "value format protobuf: needs one descriptor set"),
        (ValueOptions(format=avro), "value format avro: has no schema to read with"),
        (ValueOptions(format=json_format, schema="a INTT"), "value schema: "),
        (ValueOptions(format=json_format, schema=" "), "value schema: is empty; legal is Spark DDL"),
        (ValueOptions(format=json_format, schema='{"type": '), "value schema: line 1, column 10: "),
        (
            ValueOptions(format=json_format, schema="a INT, A INT"),
            "value schema: the fields 'a' and 'A' differ",
        ),
        (ValueOptions(format=json_format, schema="a INTERVAL DAY"), "value schema: the type interval day"),
        (ValueOptions(format=json_format, schema="a MAP<INT, INT>"), "value schema: map<int,int> has keys"),
        (
            ValueOptions(format=json_format, schema="a VARIANT"),
            "value schema: the type variant is not supported",
        ),
        (
            ValueOptions(format=json_format, schema="a CHAR(3)"),
            "value schema: the type char(3) is not supported",
        ),
        (ValueOptions(format=json_format, schema_files=(str(path),)), f"schema file {str(path)!r}: "),
    ]
    for options, message in refused:
        with pytest.raises(SettingError) as raised:
            open_decoder(options, spark, batch, None)
        assert str(raised.value).startswith(message)


def test_schemas_as_sparks_json_and_as_files(spark: SparkSession, tmp_path: Path) -> None:
    batch = records(spark, None)
    wanted = st.StructType().add("a", st.LongType()).add("b", st.DecimalType(5, 2))
    (tmp_path / "type.json").write_text(wanted.json())
    (tmp_path / "type.ddl").write_text("a BIGINT,\n b DECIMAL(5, 2)\n")
    options = [
        ValueOptions(format=ValueFormat.JSON, schema=wanted.json()),
        ValueOptions(format=ValueFormat.JSON, schema=wanted.simpleString()),
        *[
            ValueOptions(format=ValueFormat.JSON, schema_files=(str(tmp_path / name),))
            for name in ("type.json", "type.ddl")
        ],
    ]
    assert [open_decoder(one, spark, batch, None).value_type for one in options] == [wanted] * 4
