"""The growth of the type of inferred values."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from spark_jobs.decoding.json.evolution import evolved
from spark_jobs.decoding.json.observed import (
    MAX_TYPE_DEPTH,
    NOTHING,
    Observed,
    from_plain,
    join,
    observe,
    to_plain,
)
from spark_jobs.decoding.json.parser import parse
from tests.spark_jobs.decoding.json_texts import VALUES
from tests.spark_jobs.decoding.spark_types import STRUCTS


def seen(*texts: str) -> Observed:
    return reduce(join, (observe(parse(text.encode())) for text in texts), NOTHING)


def new(*texts: str) -> str:
    return evolved(None, seen(*texts), 1000).simpleString()


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1"], "bigint"),
        (["1", "1.5"], "double"),
        (["1", "9223372036854775808"], "decimal(19,0)"),
        (["12345678901234567890123", "1.5"], "double"),
        (["1" * 39], "void"),
        (["1e400"], "void"),
        (["NaN"], "double"),
        (["true"], "boolean"),
        (["true", "1"], "string"),
        (['"x"', "1"], "string"),
        (["[1]", "[1.5, null]"], "array<double>"),
        (["[]"], "void"),
        (["{}"], "void"),
        (["null"], "void"),
        (["[]", "[[]]", "[[1]]"], "array<array<bigint>>"),
        (["[1]", '"x"'], "string"),
        (['{"b": 1, "a": "x"}'], "struct<a:string,b:bigint>"),
        (['{"a": 1}', '{"b": null, "c": [], "d": {}}'], "struct<a:bigint>"),
        (['{"a": {"x": 1}}', '{"a": {"y": 1}}'], "struct<a:struct<x:bigint,y:bigint>>"),
        (['{"a": {"x": 1}}', '{"a": 5}'], "struct<a:string>"),
        (['{"id": 1}', '{"ID": 2.5}'], "struct<ID:double>"),
        (['{"": 1, "a": 1}'], "struct<a:bigint>"),
        (['{"a\\ud800": 1, "b\\u0000": 1, "a": 1}'], "struct<a:bigint>"),
        ([f'{{"{"x" * 256}": 1, "a": 1}}'], "struct<a:bigint>"),
        (['{"µ": 1}', '{"\u03bc": 2.5}', '{"\u039c": 1}'], "struct<µ:double>"),
        (['{"straße": 1}', '{"STRASSE": 1}', '{"STRAßE": 1}'], "struct<STRASSE:bigint,STRAßE:bigint>"),
        (['{"a": 1}', "5", '"x"', "[1]"], "struct<a:bigint>"),
    ],
)
def test_what_values_say_of_their_type(texts: list[str], expected: str) -> None:
    assert new(*texts) == new(*reversed(texts)) == expected


@pytest.mark.parametrize(
    ("known", "texts", "expected"),
    [
        ("int", ["1"], "int"),
        ("int", ["3000000000"], "bigint"),
        ("int", ["3000000000", "1.5"], "bigint"),
        ("int", ["1.5"], "int"),
        ("bigint", ["1.5"], "bigint"),
        ("bigint", ["9223372036854775808"], "bigint"),
        ("float", ["1.5"], "double"),
        ("float", ["1"], "float"),
        ("decimal(5,2)", ["12345"], "decimal(7,2)"),
        ("decimal(5,2)", ["1.5"], "decimal(5,2)"),
        ("decimal(38,2)", ["1" * 38], "decimal(38,2)"),
        ("string", ["1", "{}"], "string"),
        ("date", ['"x"'], "date"),
        ("boolean", ["5"], "boolean"),
    ],
)
def test_what_iceberg_cannot_promote_stays(known: str, texts: list[str], expected: str) -> None:
    """https://iceberg.apache.org/spec/#schema-evolution"""
    table = spark.StructType().add("a", scalar(known))
    grown = evolved(table, seen(*[f'{{"a": {text}}}' for text in texts]), 1000)
    assert grown == spark.StructType().add("a", scalar(expected))
    in_map = spark.MapType(spark.StringType(), scalar(known))
    assert evolved(in_map, seen(*[f'{{"k": {text}}}' for text in texts]), 1000) == spark.MapType(
        spark.StringType(), scalar(expected)
    )
    in_array = spark.ArrayType(scalar(known))
    assert evolved(in_array, seen(f"[{', '.join(texts)}]"), 1000) == spark.ArrayType(scalar(expected))


def scalar(name: str) -> spark.DataType:
    named: dict[str, spark.DataType] = {
        "int": spark.IntegerType(),
        "bigint": spark.LongType(),
        "float": spark.FloatType(),
        "double": spark.DoubleType(),
        "string": spark.StringType(),
        "date": spark.DateType(),
        "boolean": spark.BooleanType(),
    }
    if name in named:
        return named[name]
    precision, scale = name.removeprefix("decimal(").removesuffix(")").split(",")
    return spark.DecimalType(int(precision), int(scale))


def test_new_fields_come_behind_the_known_ones_by_name() -> None:
    table = (
        spark.StructType().add("z", spark.LongType()).add("s", spark.StructType().add("y", spark.LongType()))
    )
    grown = evolved(table, seen('{"b": 1, "a": 1, "Z": 5, "s": {"x": true}}'), 1000)
    assert grown.simpleString() == "struct<z:bigint,s:struct<y:bigint,x:boolean>,a:bigint,b:bigint>"


def test_fields_are_bounded_and_the_first_names_get_their_place() -> None:
    """Keys used as field names must not make a table of a million columns."""
    texts = [f'{{"k{number:03}": {number}}}' for number in range(200)]
    assert new(*texts).count("bigint") == 200
    grown = evolved(None, seen(*texts), 3)
    assert grown.simpleString() == "struct<k000:bigint,k001:bigint,k002:bigint>"
    assert evolved(grown, seen(*texts), 3) == grown
    assert evolved(grown, seen('{"k000": {"x": 1}, "k500": 1}'), 1) == grown
    assert (
        evolved(None, seen('{"a": {"x": 1, "y": 2}, "b": 1}'), 2).simpleString()
        == "struct<a:struct<x:bigint>>"
    )


def test_what_is_nested_deeper_than_a_table_copes_with_is_text() -> None:
    deep = evolved(None, seen('{"a": ' * 50 + "1" + "}" * 50), 1000)
    assert deep.simpleString().count("struct") == MAX_TYPE_DEPTH
    assert deep.simpleString().endswith("a:string" + ">" * MAX_TYPE_DEPTH)


OBSERVED = st.lists(VALUES, max_size=4).map(lambda texts: seen(*[text for text in texts if parses(text)]))


def parses(text: str) -> bool:
    return "Inf" not in text.replace("-Infinity", "") and "-NaN" not in text


@given(one=OBSERVED, other=OBSERVED, third=OBSERVED)
def test_joining_does_not_depend_on_the_order(one: Observed, other: Observed, third: Observed) -> None:
    assert join(one, other) == join(other, one)
    assert join(join(one, other), third) == join(one, join(other, third))
    assert join(one, one) == one == join(one, NOTHING)
    assert from_plain(to_plain(one)) == one


@given(known=STRUCTS, observed=OBSERVED, more=OBSERVED)
def test_a_table_only_changes_as_iceberg_allows(
    known: spark.StructType, observed: Observed, more: Observed
) -> None:
    grown = evolved(known, observed, 1000)
    assert_promoted(known, grown)
    assert_promoted(grown, evolved(grown, more, 1000))
    assert evolved(grown, observed, 1000) == grown


PROMOTED = {("integer", "long"), ("float", "double")}


def assert_promoted(old: spark.DataType, new: spark.DataType) -> None:
    match old, new:
        case (spark.StructType(), spark.StructType()):
            assert new.names[: len(old.names)] == old.names
            assert len({name.lower() for name in new.names}) == len(new.names)
            for before, after in zip(old.fields, new.fields, strict=False):
                assert_promoted(before.dataType, after.dataType)
        case (spark.ArrayType(), spark.ArrayType()):
            assert_promoted(old.elementType, new.elementType)
        case (spark.MapType(), spark.MapType()):
            assert_promoted(old.valueType, new.valueType)
        case (spark.DecimalType(), spark.DecimalType()):
            assert (new.precision >= old.precision, new.scale) == (True, old.scale)
        case _:
            assert old == new or (old.typeName(), new.typeName()) in PROMOTED
