"""Protobuf values as columns: what every kind of field becomes, and the reasons of what does not decode."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import SettingError
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.protobuf.column import ProtobufFormat
from spark_jobs.decoding.protobuf.descriptors import check_message, read_descriptor
from tests.spark_jobs.decoding.descriptor_sets import (
    descriptor_set,
    enum,
    field,
    file,
    map_entry,
    message,
    presence,
)

WELL_KNOWN = [
    f"google/protobuf/{name}.proto"
    for name in ("timestamp", "wrappers", "struct", "empty", "duration", "any")
]

LINE = message("Line", field("sku", 1, "string"), field("count", 2, "int32"))
ORDER = message(
    "Order",
    field("id", 1, "int64"),
    field("name", 2, "string"),
    field("lines", 3, ".shop.Line", "repeated"),
    field("color", 4, "enum .shop.Color"),
    field("counts", 5, ".shop.Order.CountsEntry", "repeated"),
    field("by_number", 6, ".shop.Order.ByNumberEntry", "repeated"),
    presence(field("note", 7, "string"), 1),
    field("card", 8, "string", oneof=0),
    field("cash", 9, ".google.protobuf.Empty", oneof=0),
    field("at", 10, ".google.protobuf.Timestamp"),
    field("total", 11, ".google.protobuf.Int64Value"),
    field("extra", 12, ".google.protobuf.Struct"),
    field("took", 13, ".google.protobuf.Duration"),
    field("tags", 14, "bytes", "repeated"),
    field("colors", 15, "enum .shop.Color", "repeated"),
    nested=[
        map_entry("CountsEntry", "string", "uint64"),
        map_entry("ByNumberEntry", "int32", ".shop.Line"),
        message("Inner", field("x", 1, "int32")),
    ],
    oneofs=["paid", "_note"],
)
SHOP = descriptor_set(
    file(LINE, ORDER, enums=[enum("Color", NONE=0, RED=1)], imports=WELL_KNOWN),
)
EMPTY_ORDER: dict[str, object] = {
    "id": 0,
    "name": "",
    "lines": [],
    "color": "NONE",
    "counts": [],
    "by_number": [],
    "note": None,
    "card": None,
    "cash": None,
    "at": None,
    "total": None,
    "extra": None,
    "took": None,
    "tags": [],
    "colors": [],
}


def new(message_name: str = "shop.Order", content: bytes = SHOP, **fields: Any) -> Any:
    return GetMessageClass(read_descriptor(content, message_name, "test"))(**fields)


def decoded(
    data: bytes, name: str = "shop.Order", content: bytes = SHOP, framing: Framing = Framing.NONE
) -> tuple[Any, str | None]:
    found = ProtobufFormat(descriptor_set=content, message=name, framing=framing)
    column = found.open().decode(pa.array([data], pa.binary()))
    return column.values[0].as_py(), column.errors[0]


def test_every_kind_of_field_is_a_column() -> None:
    check_message(SHOP, "shop.Order", "shop.desc")
    value_type = ProtobufFormat(descriptor_set=SHOP, message="shop.Order", framing=Framing.NONE).value_type
    line = "struct<sku:string,count:int>"
    assert value_type.simpleString() == (
        f"struct<id:bigint,name:string,lines:array<{line}>,color:string,counts:map<string,decimal(20,0)>,"
        f"by_number:map<int,{line}>,note:string,card:string,cash:boolean,at:timestamp,total:bigint,extra:string,"
        "took:struct<seconds:bigint,nanos:int>,tags:array<binary>,colors:array<string>>"
    )
    order = new(id=5, name="€", color=1, note="", colors=[1, 0], tags=[b"\xff"])
    order.lines.add(sku="s", count=2)
    order.counts["k"] = 2**64 - 1
    order.by_number[7].count = 3
    order.cash.SetInParent()
    order.at.FromDatetime(datetime.datetime(2024, 5, 31, 10, 0, 0, 5))
    order.at.nanos += 999
    order.total.value = 0
    order.extra.update({"b": [1.5, None, "€"], "a": {}})
    order.took.seconds = 3
    assert decoded(order.SerializeToString()) == (
        {
            "id": 5,
            "name": "€",
            "lines": [{"sku": "s", "count": 2}],
            "color": "RED",
            "counts": [("k", Decimal(2**64 - 1))],
            "by_number": [(7, {"sku": "", "count": 3})],
            "note": "",
            "card": None,
            "cash": True,
            "at": datetime.datetime(2024, 5, 31, 10, 0, 0, 5, datetime.UTC),
            "total": 0,
            "extra": '{"a": {}, "b": [1.5, null, "€"]}',
            "took": {"seconds": 3, "nanos": 0},
            "tags": [b"\xff"],
            "colors": ["RED", "NONE"],
        },
        None,
    )


def test_unwritten_fields_are_defaults_or_null_with_presence() -> None:
    assert decoded(b"") == (EMPTY_ORDER, None)
    assert decoded(new(card="").SerializeToString()) == (EMPTY_ORDER | {"card": ""}, None)


@pytest.mark.parametrize(
    ("kind", "value", "spark"),
    [
        ("double", float("-inf"), "double"),
        ("float", 0.5, "float"),
        ("int32", -(2**31), "int"),
        ("sint32", -(2**31), "int"),
        ("sfixed32", -1, "int"),
        ("uint32", 2**32 - 1, "bigint"),
        ("fixed32", 2**32 - 1, "bigint"),
        ("int64", -(2**63), "bigint"),
        ("sint64", -(2**63), "bigint"),
        ("sfixed64", -1, "bigint"),
        ("uint64", 2**64 - 1, "decimal(20,0)"),
        ("fixed64", 2**64 - 1, "decimal(20,0)"),
        ("bool", True, "boolean"),
        ("string", "x", "string"),
        ("bytes", b"\xff", "binary"),
    ],
)
def test_scalars_keep_their_values(kind: str, value: object, spark: str) -> None:
    content = descriptor_set(file(message("M", field("f", 1, kind), field("many", 2, kind, "repeated"))))
    value_type = ProtobufFormat(descriptor_set=content, message="shop.M", framing=Framing.NONE).value_type
    assert value_type.simpleString() == f"struct<f:{spark},many:array<{spark}>>"
    data = new("shop.M", content, f=value, many=[value]).SerializeToString()
    assert decoded(data, "shop.M", content) == ({"f": value, "many": [value]}, None)


def test_wrappers_are_what_they_wrap() -> None:
    kinds = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    fields = [
        field(kind.lower(), number, f".google.protobuf.{kind}Value") for number, kind in enumerate(kinds, 1)
    ]
    content = descriptor_set(file(message("M", *fields), imports=WELL_KNOWN))
    empty = new("shop.M", content)
    assert decoded(empty.SerializeToString(), "shop.M", content) == ({one.name: None for one in fields}, None)
    for one in fields:
        getattr(empty, one.name).SetInParent()
    found, error = decoded(empty.SerializeToString(), "shop.M", content)
    assert error is None
    assert list(found.values()) == [0.0, 0.0, 0, Decimal(0), 0, 0, False, "", b""]


FRAMED = b"\0\0\0\0\7"


@pytest.mark.parametrize(
    ("name", "indexes", "wrong"),
    [
        ("shop.Line", b"\0", b"\2\2"),
        ("shop.Order", b"\2\2", b"\0"),
        ("shop.Order.Inner", b"\4\2\4", b"\4\2\0"),
    ],
)
def test_framing_says_which_message_it_is(name: str, indexes: bytes, wrong: bytes) -> None:
    data = b"" if name == "shop.Order" else b"\x08\x01" if name == "shop.Order.Inner" else b"\x10\x01"
    plain, error = decoded(data, name)
    assert error is None
    assert decoded(FRAMED + indexes + data, name, framing=Framing.CONFLUENT) == (plain, None)
    assert decoded(FRAMED + indexes + data, name, framing=Framing.AUTO) == (plain, None)
    assert decoded(data, name, framing=Framing.AUTO) == (plain, None)
    _, error = decoded(FRAMED + wrong + data, name, framing=Framing.AUTO)
    assert error is not None and error.startswith("value: is the message with indexes [") and name in error
    _, error = decoded(data, name, framing=Framing.CONFLUENT)
    assert error is not None and "Confluent" in error


NOT_ITS_TYPE = ", which its type in the descriptor set does not have"
NAME = b"\x12\x01x"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "value.id: is cut off within a number"),
        (b"\x08" + b"\xff" * 10, "value.id: has a number of more than 10 bytes"),
        (b"\x12\x05x", "value.name: has the length 5, and 1 bytes are left"),
        (b"\x12\x01\xff", "value.name: is not UTF-8 at byte 0 of the string"),
        (b"\x1a\x03\x0a\x01\xff", "value.lines.sku: is not UTF-8 at byte 0 of the string"),
        (b"\x1a\x02\x0a\x05", "value.lines.sku: has the length 5, and 0 bytes are left"),
        (b"\x00\x01", "value: has the field number 0; legal are 1 to 536870911"),
        (b"\x0f", "value.id: has the wire type 7; legal are 0 to 5"),
        (b"\x0b\x08\x01", "value: ends within a group"),
        (b"\x0c", "value: has the end of a group, field 1, that did not begin"),
        (
            b"\x0a\x01x",
            "value.id: is written with wire type 2" + NOT_ITS_TYPE,
        ),
        (
            NAME + b"\x3d1234",
            "value.note: is written with wire type 5" + NOT_ITS_TYPE,
        ),
        (
            b"\x1a\x02\x12\x00",
            "value.lines[0].count: is written with wire type 2" + NOT_ITS_TYPE,
        ),
        (
            b"\x32\x06\x08\x07\x12\x02\x08\x01",
            "value.by_number.'7'.sku: is written with wire type 0" + NOT_ITS_TYPE,
        ),
        (
            b"\x5a\x02\x0a\x00",
            "value.total.value: is written with wire type 2" + NOT_ITS_TYPE,
        ),
        (b"\x20\x07", "value.color: is number 7, which enum shop.Color of the descriptor set does not name"),
        (
            b"\x7a\x02\x01\x07",
            "value.colors[1]: is number 7, which enum shop.Color of the descriptor set does not name",
        ),
        (b"\xf8\x07\x01", "value: has none of the fields of message shop.Order"),
        (
            b"\x52\x06\x10\x80\x94\xeb\xdc\x03",
            "value.at: is no timestamp of the years 1 to 9999: seconds 0, nanos 1000000000",
        ),
        (
            b"\x62\x10\x0a\x0e\x0a\x01x\x12\x09\x11" + b"\0" * 6 + b"\xf8\x7f",
            "value.extra: cannot be written as JSON: ",
        ),
    ],
)
def test_reasons_name_field_and_problem(data: bytes, reason: str) -> None:
    value, error = decoded(data)
    assert value is None
    assert error is not None and error.startswith(reason)
    assert error == reason or reason.endswith(": ")


def test_fields_newer_than_the_descriptor_set_are_dropped() -> None:
    assert decoded(NAME + b"\xf8\x07\x01") == (EMPTY_ORDER | {"name": "x"}, None)


def test_nesting_is_bounded() -> None:
    content = descriptor_set(file(message("M", field("x", 1, "int32"))))
    data = b"\x08\x01"
    for _ in range(200):
        data = b"\x13" + data + b"\x14"
    assert decoded(b"\x08\x01" + data, "shop.M", content)[1] is not None


PROTO2 = descriptor_set(
    file(
        message(
            "Old",
            field("must", 1, "int32", "required"),
            field("may", 2, "int32"),
            field("kind", 3, "enum .shop.Kind"),
            field("text", 4, "string"),
            field("by", 5, ".shop.Old.ByEntry", "repeated"),
            nested=[map_entry("ByEntry", "string", "string")],
        ),
        enums=[enum("Kind", A=1, B=2)],
        syntax="proto2",
    )
)


def test_proto2_has_required_fields_presence_and_closed_enums() -> None:
    assert decoded(b"\x08\x01", "shop.Old", PROTO2) == (
        {"must": 1, "may": None, "kind": None, "text": None, "by": []},
        None,
    )
    assert decoded(b"\x10\x01", "shop.Old", PROTO2)[1] == "value: lacks the required must"
    assert decoded(b"", "shop.Old", PROTO2)[1] == "value: lacks the required must"
    assert decoded(b"\x08\x01\x18\x09", "shop.Old", PROTO2)[1] == (
        "value.kind: is number 9, which enum shop.Kind of the descriptor set does not name"
    )
    assert decoded(b"\x08\x01\x22\x01\xff", "shop.Old", PROTO2)[1] == (
        "value.text: is not UTF-8 at byte 0 of the string"
    )
    entries = b"\x2a\x03\x0a\x01\xff" + b"\x2a\x03\x0a\x01k"
    assert decoded(b"\x08\x01" + entries, "shop.Old", PROTO2)[1] == (
        "value.by: is not UTF-8 at byte 0 of the string"
    )


@given(data=st.binary(max_size=40), framing=st.sampled_from(Framing))
def test_any_bytes_are_a_value_or_have_a_reason(data: bytes, framing: Framing) -> None:
    for name in ("shop.Order", "shop.Line"):
        value, error = decoded(data, name, framing=framing)
        assert (value is None) == (error is not None)
        assert error is None or error.startswith("value")


@given(
    count=st.integers(-(2**31), 2**31 - 1),
    sku=st.text(max_size=5),
    keys=st.dictionaries(st.text(max_size=3), st.integers(0, 2**64 - 1), max_size=4),
    cut=st.integers(0, 60),
)
def test_values_are_kept_and_cut_ones_never_become_others_unseen(
    count: int, sku: str, keys: dict[str, int], cut: int
) -> None:
    order = new(id=1)
    order.lines.add(sku=sku, count=count)
    for key, number in keys.items():
        order.counts[key] = number
    data = order.SerializeToString(deterministic=True)
    value, error = decoded(data)
    assert error is None
    assert value["lines"] == [{"sku": sku, "count": count}]
    assert dict(value["counts"]) == {key: Decimal(number) for key, number in keys.items()}
    value, error = decoded(data[:cut])
    assert error is not None or new().FromString(data[:cut]) is not None


def test_names_may_be_pythons_words() -> None:
    content = descriptor_set(
        file(message("M", *[field(name, n, "int32") for n, name in enumerate(WORDS, 1)]))
    )
    data = b"".join(bytes([number << 3, number]) for number in range(1, len(WORDS) + 1))
    assert decoded(data, "shop.M", content) == ({name: n for n, name in enumerate(WORDS, 1)}, None)


WORDS = ["from", "class", "self", "message", "_x", "None"]


def test_settings_that_cannot_be_used_say_why() -> None:
    def refused(content: bytes, name: str = "shop.M") -> str:
        with pytest.raises(SettingError) as raised:
            check_message(content, name, "x.desc")
        return str(raised.value)

    source = "schema file 'x.desc': "
    hint = "is no descriptor set; make one with protoc --include_imports --descriptor_set_out=FILE"
    assert refused(b"\xff") == refused(b"") == refused(b'syntax = "proto3";') == source + hint
    assert (
        refused(SHOP, "Order")
        == f"{source}has no message 'Order'; legal are shop.Line, shop.Order, shop.Order.Inner"
    )
    missing = file(message("M", field("x", 1, ".other.X")), imports=["other.proto"])
    assert refused(descriptor_set(missing)) == (
        f"{source}imports 'other.proto' and does not hold it; use protoc --include_imports"
    )
    unresolved = file(message("M", field("x", 1, ".other.X")))
    assert refused(descriptor_set(unresolved)).startswith(f"{source}shop.proto: ")
    recursive = file(message("M", field("m", 1, ".shop.M", "repeated")))
    assert (
        refused(descriptor_set(recursive))
        == f"{source}message shop.M contains itself, which no column can hold"
    )
    hiding = file(message("M", field("ByteSize", 1, "int32")))
    assert refused(descriptor_set(hiding)).startswith(
        f"{source}message shop.M has a field 'ByteSize', which hides "
    )
    cased = file(message("M", field("a", 1, "int32"), field("A", 2, "int32")))
    assert refused(descriptor_set(cased)).startswith(f"{source}the fields 'a' and 'A' differ only in case; ")
