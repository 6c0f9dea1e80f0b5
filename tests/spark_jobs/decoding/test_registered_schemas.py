"""Schemas of a registry: writers by id, missing ids, JSON Schema as a type, Protobuf's files and messages."""

import base64
import importlib.util
import io
import json
import shutil
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyspark.sql import types as st

from kafscale.errors import SettingError
from kafscale.lake.registry.documents import SchemaDocument, SchemaType
from kafscale.lake.routes import RouteKey, RouteKind
from spark_jobs.decoding.avro.column import AvroFormat
from spark_jobs.decoding.avro.schemas import read_schemas, type_name
from spark_jobs.decoding.json.json_schema import json_schema_type, title_of
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.protobuf import registered
from spark_jobs.decoding.protobuf.column import ProtobufFormat
from spark_jobs.decoding.schema_source import SchemaSource, UnknownIds
from spark_jobs.job.routing import TypeFinder, type_names
from tests.spark_jobs.decoding.descriptor_sets import field, file, message

FIELDS = [{"name": "id", "type": "long"}]
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}


def document(
    number: int, schema: object, kind: SchemaType = SchemaType.AVRO, **references: object
) -> SchemaDocument:
    def text(one: object) -> str:
        return one if isinstance(one, str) else json.dumps(one)

    return SchemaDocument(
        schema_id=number,
        schema_type=kind,
        text=text(schema),
        references={name: text(one) for name, one in references.items()},
    )


def framed(number: int, schema: Any, value: object) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def test_writers_are_read_by_id_and_missing_ids_are_reported() -> None:
    older = {**ORDER, "fields": [{"name": "id", "type": "int"}]}
    other = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    reported: list[int] = []
    source = SchemaSource(
        reader=document(1, ORDER),
        writers={
            1: document(1, ORDER),
            2: document(2, older),
            3: document(3, other),
            4: document(4, '{"title": "x"}', SchemaType.JSON),
        },
        report_unknown=reported.append,
    )
    schemas = read_schemas(None, (), source)
    decoder = AvroFormat(
        schemas=schemas, framing=Framing.CONFLUENT, report_unknown=source.report_unknown
    ).open()
    values = [framed(1, ORDER, {"id": 5}), framed(2, older, {"id": 6})]
    values += [framed(number, other, {"id": "x"}) for number in (3, 4, 9, 9, 7)]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist()[:3] == [{"id": 5}, {"id": 6}, None]
    assert decoded.errors == [
        None,
        None,
        "value: has the schema id 3, whose schema cannot be read with the reader's: value.id: string cannot be read "
        "as long",
        "value: has the schema id 4, whose schema: is of type JSON, and values are of format avro",
        "value: has the schema id 9, whose schema is not known",
        "value: has the schema id 9, whose schema is not known",
        "value: has the schema id 7, whose schema is not known",
    ]
    assert reported == [9, 7]


def test_a_schema_uses_the_types_that_it_refers_to() -> None:
    country = {"type": "enum", "name": "shop.Country", "symbols": ["DE", "FR"]}
    city = {"type": "record", "name": "shop.City", "fields": [{"name": "country", "type": "shop.Country"}]}
    home = {**ORDER, "fields": [{"name": "city", "type": "shop.City"}]}
    reader = SchemaDocument(
        schema_id=1,
        schema_type=SchemaType.AVRO,
        text=json.dumps(home),
        references={"country": json.dumps(country), "city": json.dumps(city)},
    )
    schemas = read_schemas(None, (), SchemaSource(reader=reader))
    expected = "struct<city:struct<country:string>>"
    assert AvroFormat(schemas=schemas, framing=Framing.NONE).value_type.simpleString() == expected
    with pytest.raises(SettingError, match=r"the registry's schema: the type 'shop.City' is not known"):
        read_schemas(None, (), SchemaSource(reader=document(1, home)))
    with pytest.raises(SettingError, match="is of type JSON, and values are of format avro"):
        read_schemas(None, (), SchemaSource(reader=document(1, "{}", SchemaType.JSON)))


def test_missing_ids_are_reported_within_a_bound() -> None:
    reported: list[int] = []
    unknown = UnknownIds(reported.append)
    for number in range(5_000):
        unknown.add(number)
    assert len(reported) == 1_000
    UnknownIds(None).add(1)


JSON_TYPES: list[tuple[object, str]] = [
    ({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}},
     "struct<a:string,b:bigint>"),
    ({"properties": {"n": {"type": ["null", "number"]}}}, "struct<n:double>"),
    ({"properties": {"n": {"type": ["integer", "string"]}}}, "struct<n:string>"),
    ({"properties": {"n": {"oneOf": [{"type": "null"}, {"type": "boolean"}]}}}, "struct<n:boolean>"),
    ({"properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}, "struct<n:string>"),
    ({"properties": {"at": {"type": "string", "format": "date-time"}}}, "struct<at:timestamp>"),
    ({"properties": {"d": {"type": "string", "format": "date"}, "u": {"type": "string", "format": "uuid"}}},
     "struct<d:date,u:string>"),
    ({"properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}}},
     "struct<m:map<string,bigint>>"),
    ({"properties": {"o": {"type": "object"}, "x": {}, "y": True}}, "struct<o:string,x:string,y:string>"),
    ({"properties": {"l": {"type": "array", "items": {"type": "number"}}, "t": {"type": "array"}}},
     "struct<l:array<double>,t:string>"),
    ({"properties": {"i": {"type": "integer", "connect.type": "int32", "connect.index": 1},
                     "z": {"type": "integer", "connect.type": "int8", "connect.index": 0}}},
     "struct<z:tinyint,i:int>"),
    ({"$ref": "#/definitions/A", "definitions": {"A": {"properties": {"s": {"$ref": "#/definitions/B~1C"}}},
                                                 "B/C": {"type": "integer"}}}, "struct<s:bigint>"),
    ({"properties": {"next": {"$ref": "#"}, "id": {"type": "integer"}}},
     "struct<id:bigint,next:struct<id:bigint,next:string>>"),
    ({"properties": {"c": {"$ref": "country.json"}, "d": {"$ref": "none.json#/x"}}},
     "struct<c:struct<iso:string>,d:string>"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "expected"), JSON_TYPES)
def test_json_schema_is_a_type(schema: object, expected: str) -> None:
    found = json_schema_type(
        document(1, schema, SchemaType.JSON, **{"country.json": {"properties": {"iso": {"type": "string"}}}}),
        "it",
    )
    assert found.simpleString() == expected


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "it: is no JSON Schema"),
        ("[" * 100_000, "it: is no JSON Schema"),
        ('{"type": "string"}', "it: describes no object with properties"),
        ("true", "it: describes no object with properties"),
        ('{"properties": {"a": {"$ref": "#/none"}}}', "it: refers to '#/none', which is not there"),
        ('{"properties": {"a": {}, "A": {}}}', "differ only in case"),
    ],
)
def test_json_schema_without_columns_is_refused(schema: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        json_schema_type(document(1, schema, SchemaType.JSON), "it")


def test_deep_json_schema_ends_as_text() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(100):
        schema = {"properties": {"a": schema}}
    found: st.DataType = json_schema_type(document(1, schema, SchemaType.JSON), "it")
    depth = 0
    while isinstance(found, st.StructType):
        found, depth = found["a"].dataType, depth + 1
    assert isinstance(found, st.StringType)
    assert depth < 40


LINE = file(message("Line", field("sku", 1, "string")), name="whatever")
SHOP = file(
    message("Other", field("x", 1, "int32")),
    message(
        "Order",
        field("id", 1, "int64"),
        field("line", 2, ".shop.Line"),
        nested=[message("Inner", field("y", 1, "int32"))],
    ),
    imports=["shop/line.proto"],
    name="default",
)


def in_base64(one: Any) -> str:
    return base64.b64encode(one.SerializeToString()).decode()


def shop(number: int) -> SchemaDocument:
    return document(number, in_base64(SHOP), SchemaType.PROTOBUF, **{"shop/line.proto": in_base64(LINE)})


def test_protobuf_messages_by_the_indexes_of_their_schema() -> None:
    content = registered.descriptor_set(shop(1), "it")
    assert registered.first_message(content, "it") == "shop.Other"
    assert registered.message_paths(content, "it") == {
        (0,): "shop.Other",
        (1,): "shop.Order",
        (1, 0): "shop.Order.Inner",
    }
    reported: list[int] = []
    decoder = ProtobufFormat(
        descriptor_set=content,
        message="shop.Order",
        framing=Framing.AUTO,
        paths={1: (1,), 2: (0,), 3: None},
        report_unknown=reported.append,
    ).open()
    first, second = b"\x02\x02", b"\x00"  # the second message, and the first one, in Confluent's short form
    values = [
        b"\0" + number.to_bytes(4, "big") + indexes + b"\x08\x07"
        for number, indexes in ((1, first), (2, second), (1, second), (3, second), (4, second))
    ]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.values.to_pylist()[:2] == [{"id": 7, "line": None}] * 2
    assert decoded.errors[2:] == [
        "value: is the message with indexes [0], and shop.Order has [1]",
        "value: is the message with indexes [0], and shop.Order is not in its schema",
        "value: has the schema id 4, whose schema is not known",
    ]
    assert reported == [4]


def test_protobuf_as_text_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    text = document(1, 'syntax = "proto3"; message A {}', SchemaType.PROTOBUF)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SettingError, match="needs a compiler, and there is none: install protoc or"):
        registered.descriptor_set(text, "it")
    with pytest.raises(SettingError, match="is of type AVRO, and values are of format protobuf"):
        registered.descriptor_set(document(1, ORDER), "it")


def test_protobuf_as_text_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """With a compiler that writes what it is told to, and shows what it was given."""
    stand_in = tmp_path / "protoc"
    content = FileDescriptorSet(file=[SHOP]).SerializeToString()
    (tmp_path / "answer").write_bytes(content)
    stand_in.write_text(
        "#!/bin/sh\n"
        'for one; do case "$one" in\n'
        "--proto_path=*) from=${one#--proto_path=};;\n"
        f"--descriptor_set_in=*) cp ${{one#--descriptor_set_in=}} {tmp_path}/imports;;\n"
        f"--descriptor_set_out=*) cp {tmp_path}/answer ${{one#--descriptor_set_out=}};;\n"
        "esac; done\n"
        'grep -q broken "$from/$one" && echo "$from/$one:1: broken" >&2 && exit 1; exit 0\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(stand_in))
    line = {"shop/line.proto": in_base64(LINE)}
    text = document(1, "message A {}", SchemaType.PROTOBUF, **line)
    compiled = registered.descriptor_set(text, "it")
    assert registered.message_paths(compiled, "it") == registered.message_paths(
        registered.descriptor_set(shop(1), "it"), "it"
    )
    given = FileDescriptorSet.FromString((tmp_path / "imports").read_bytes())
    assert [one.name for one in given.file if "google" not in one.name] == ["shop/line.proto"]
    assert "google/protobuf/timestamp.proto" in [one.name for one in given.file]
    with pytest.raises(SettingError, match=r"it: protoc refuses it: /source/schema.proto:1: broken"):
        registered.descriptor_set(document(1, "broken {}", SchemaType.PROTOBUF, **line), "it")
    with pytest.raises(SettingError, match="is no path of an import"):
        registered.descriptor_set(
            document(1, "x {}", SchemaType.PROTOBUF, **{"../../up.proto": "message B {}"}), "it"
        )


def test_types_have_the_names_of_their_schemas() -> None:
    assert type_name(json.dumps(ORDER)) == "shop.Order"
    assert type_name('{"type": "record", "name": "a.B", "namespace": "c"}') == "a.B"
    assert [type_name(text) for text in ("[]", '"int"', "{", '{"name": 1}')] == [None] * 4
    assert title_of('{"title": "Order"}') == "Order"
    assert [title_of(text) for text in ("[]", "{", '{"title": 1}', "true")] == [None] * 4
    reported: list[int] = []
    names = type_names(
        SchemaSource(
            reader=None,
            writers={
                1: document(1, ORDER),
                2: shop(2),
                3: document(3, '{"title": "T"}', SchemaType.JSON),
                4: document(4, '"int"'),
            },
        )
    )
    finder = TypeFinder(names, reported.append)
    head = [b"\0" + number.to_bytes(4, "big") for number in range(6)]
    assert finder.find(None) == (None, None)
    assert finder.find(head[1] + b"x") == ("shop.Order", None)
    assert finder.find(head[2] + b"\x04\x02\x00") == ("shop.Order.Inner", None)
    assert finder.find(head[3]) == ("T", None)
    assert finder.find(head[4]) == (None, "value: has the schema id 4, whose schema names no such type")
    assert finder.find(head[2] + b"\x02\x08") == (
        None,
        "value: has the schema id 2, whose schema names no such type",
    )
    assert finder.find(head[5]) == (None, "value: has the schema id 5, whose schema is not known")
    assert finder.find(b"{}") == (
        None,
        "value: begins with byte 123, and Confluent's framing begins with magic byte 0",
    )
    assert reported == [5]
    assert RouteKey(kind=RouteKind.TYPE).name == ""
