"""JSON values that fit a type, and the reasons of those that do not."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from spark_jobs.decoding.json.column import JsonFormat
from spark_jobs.decoding.options import Framing

LONG, INT, DOUBLE, FLOAT, STRING = (
    st.LongType(),
    st.IntegerType(),
    st.DoubleType(),
    st.FloatType(),
    st.StringType(),
)
BYTE, BOOLEAN, BINARY, DATE = st.ByteType(), st.BooleanType(), st.BinaryType(), st.DateType()
TIMESTAMP, LOCAL, DECIMAL = st.TimestampType(), st.TimestampNTZType(), st.DecimalType(5, 2)


def decoded(
    data: bytes, data_type: st.DataType, *, inferred: bool = False, framing: Framing = Framing.NONE
) -> tuple[object, str | None]:
    """The value and the reason. Every value is looked at alone and in a block, which must not matter."""
    found = (
        JsonFormat(data_type=data_type, inferred=inferred, framing=framing)
        .open()
        .decode(pa.array([data] * 20, pa.binary()))
    )
    assert len(set(map(repr, found.values.to_pylist()))) == 1
    return found.values[0].as_py(), found.errors[0]


def in_field(text: str, data_type: st.DataType) -> tuple[object, str | None]:
    """The value of the field `f`."""
    value, error = decoded(b'{"f": %s}' % text.encode(), st.StructType().add("f", data_type))
    assert value is None or isinstance(value, dict)
    return (value["f"] if value else None), error


@pytest.mark.parametrize(
    ("text", "data_type", "value"),
    [
        ("5", LONG, 5),
        ("5.0", LONG, 5),
        ("5e2", LONG, 500),
        ("-9223372036854775808", LONG, -(2**63)),
        ("5", DOUBLE, 5.0),
        ("9007199254740992", DOUBLE, 2.0**53),
        ("0.1", DOUBLE, 0.1),
        ("1e-400", DOUBLE, 0.0),
        ('"NaN"', DOUBLE, "nan"),
        ("NaN", DOUBLE, "nan"),
        ("-Infinity", DOUBLE, float("-inf")),
        ("0.1", FLOAT, 0.10000000149011612),
        ("127", BYTE, 127),
        ("true", BOOLEAN, True),
        ('"x"', STRING, "x"),
        ("1.10", STRING, "1.10"),
        ("1e400", STRING, "1e400"),
        ("true", STRING, "true"),
        ('{"a": [1.10, null]}', STRING, '{"a":[1.10,null]}'),
        ("1.25", DECIMAL, Decimal("1.25")),
        ("1.250", DECIMAL, Decimal("1.25")),
        ('"-1.2"', DECIMAL, Decimal("-1.20")),
        ("1e2", DECIMAL, Decimal("100.00")),
        ("0e999999", DECIMAL, Decimal("0.00")),
        ('"AQI="', BINARY, b"\x01\x02"),
        ('"2024-02-29"', DATE, date(2024, 2, 29)),
        ('"2024-05-31T10:00:00.123Z"', TIMESTAMP, datetime(2024, 5, 31, 10, 0, 0, 123000, UTC)),
        ('"2024-05-31 10:00:00+02:00"', TIMESTAMP, datetime(2024, 5, 31, 8, tzinfo=UTC)),
        ('"2024-05-31T10:00:00-0530"', TIMESTAMP, datetime(2024, 5, 31, 15, 30, tzinfo=UTC)),
        ('"2024-05-31T10:00:00.1234567Z"', TIMESTAMP, datetime(2024, 5, 31, 10, 0, 0, 123456, UTC)),
        ('"2024-05-31T10:00"', TIMESTAMP, datetime(2024, 5, 31, 10, tzinfo=UTC)),
        ('"2024-05-31"', TIMESTAMP, datetime(2024, 5, 31, tzinfo=UTC)),
        ('"2024-05-31T10:00:00.5"', LOCAL, datetime(2024, 5, 31, 10, 0, 0, 500000)),
        ("[1, null]", st.ArrayType(LONG), [1, None]),
        ('{"k": 1, "": null}', st.MapType(STRING, LONG), [("k", 1), ("", None)]),
        ("null", LONG, None),
    ],
)
def test_what_fits(text: str, data_type: st.DataType, value: object) -> None:
    found, error = in_field(text, data_type)
    assert error is None
    assert (str(found) if value == "nan" else found) == value


WHOLE = "a whole number from -9223372036854775808 to 9223372036854775807"


@pytest.mark.parametrize(
    ("text", "data_type", "problem"),
    [
        ("1.5", LONG, f"is 1.5, and not {WHOLE}"),
        ('"5"', LONG, f"is '5', and not {WHOLE}"),
        ("true", LONG, f"is true, and not {WHOLE}"),
        ("[]", LONG, f"is an array, and not {WHOLE}"),
        ("{}", LONG, f"is an object, and not {WHOLE}"),
        ("9223372036854775808", LONG, f"is 9223372036854775808, and not {WHOLE}"),
        ("1e999999999", LONG, f"is 1e999999999, and not {WHOLE}"),
        ("NaN", LONG, f"is NaN, and not {WHOLE}"),
        ("7" * 5000, LONG, f"is {'7' * 59}..., and not {WHOLE}"),
        ("2147483648", INT, "is 2147483648, and not a whole number from -2147483648 to 2147483647"),
        ("200", BYTE, "is 200, and not a whole number from -128 to 127"),
        ("9007199254740993", DOUBLE, "is 9007199254740993, and not a number that a double can hold"),
        ("1e400", DOUBLE, "is 1e400, and not a number that a double can hold"),
        ("1" + "0" * 400, DOUBLE, f"is 1{'0' * 58}..., and not a number that a double can hold"),
        ('"1.5"', DOUBLE, "is '1.5', and not a number that a double can hold"),
        ("1e39", FLOAT, "is 1e39, and not a number that a float can hold"),
        ("16777217", FLOAT, "is 16777217, and not a number that a float can hold"),
        ("1", BOOLEAN, "is 1, and not true or false"),
        ('"true"', BOOLEAN, "is 'true', and not true or false"),
        ('"\\ud800"', STRING, "has half a surrogate pair at character 0"),
        ('{"a": 1, "a": 2}', STRING, "stands twice in its object"),
        ("1.239", DECIMAL, "is 1.239, and not a number of at most 3 digits before and 2 behind the point"),
        ("1000", DECIMAL, "is 1000, and not a number of at most 3 digits before and 2 behind the point"),
        ('"1_0"', DECIMAL, "is '1_0', and not a number of at most 3 digits before and 2 behind the point"),
        ("NaN", DECIMAL, "is NaN, and not a number of at most 3 digits before and 2 behind the point"),
        ('"AQI"', BINARY, "is 'AQI', and not a string in Base64"),
        ("5", BINARY, "is 5, and not a string in Base64"),
        ('"2024-02-30"', DATE, "is '2024-02-30', and not a date such as 2024-05-31"),
        ("5", DATE, "is 5, and not a date such as 2024-05-31"),
        (
            "1717142400000",
            TIMESTAMP,
            "is 1717142400000, and not a timestamp such as 2024-05-31T10:00:00.000Z",
        ),
        ('"now"', TIMESTAMP, "is 'now', and not a timestamp such as 2024-05-31T10:00:00.000Z"),
        (
            '"2024-05-31T10:00:00Z"',
            LOCAL,
            "is '2024-05-31T10:00:00Z', and not a timestamp without offset such as 2024-05-31T10:00:00.000",
        ),
        ('{"0": 1}', st.ArrayType(LONG), "is an object, and not an array"),
        ("[1]", st.MapType(STRING, LONG), "is an array, and not an object"),
        ("[1]", st.StructType().add("x", LONG), "is an array, and not an object"),
        ("5", st.StructType().add("x", LONG), "is 5, and not an object"),
    ],
)
def test_what_does_not_fit_says_what_it_is_and_what_is_wanted(
    text: str, data_type: st.DataType, problem: str
) -> None:
    value, error = in_field(text, data_type)
    assert value is None
    assert error is not None and error.startswith("value.f")
    assert error.partition(": ")[2] == problem


NESTED = (
    st.StructType()
    .add("items", st.ArrayType(st.StructType().add("n", LONG).add("at", DATE)))
    .add("by key", st.MapType(STRING, st.ArrayType(LONG)))
)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"items": [{"n": 1}, {"n": "x"}]}', "value.items[1].n"),
        (b'{"items": [{"at": "x"}]}', "value.items[0].at"),
        (b'{"by key": {"k\\u20ac": [1, 2, {}]}}', "value.'by key'.'k\\u20ac'[2]"),
        (b'{"by key": {"k": 1, "k": 2}}', "value.'by key'.k"),
    ],
)
def test_reasons_name_the_field(data: bytes, path: str) -> None:
    _, error = decoded(data, NESTED)
    assert error is not None and error.partition(": ")[0] == path


def test_a_given_schema_says_what_is_required() -> None:
    schema = st.StructType().add("a", LONG, nullable=False).add("b", st.ArrayType(LONG, containsNull=False))
    assert decoded(b'{"a": 1, "b": [1]}', schema) == ({"a": 1, "b": [1]}, None)
    assert decoded(b'{"b": []}', schema)[1] == "value.a: is null or missing, and the schema says NOT NULL"
    assert decoded(b'{"a": null}', schema)[1] == "value.a: is null or missing, and the schema says NOT NULL"
    assert decoded(b'{"a": 1, "b": [1, null]}', schema)[1] == (
        "value.b[1]: is null or missing, and the schema says NOT NULL"
    )
    found = JsonFormat(data_type=schema, inferred=False, framing=Framing.NONE).value_type
    assert found == st.StructType().add("a", LONG).add("b", st.ArrayType(LONG)), "tables can evolve only so"


def test_a_given_schema_drops_other_fields_and_matches_exactly() -> None:
    schema = st.StructType().add("a", LONG)
    assert decoded(b'{"a": 1, "x": {"y": [1, "z"]}}', schema) == ({"a": 1}, None)
    assert decoded(b'{"a": 1, "x": 1, "x": 2}', schema) == ({"a": 1}, None)
    assert decoded(b'{"A": 1}', schema) == ({"a": None}, None)
    assert decoded(b'{"a": 1, "a": 2}', schema) == (None, "value.a: stands twice in its object")


def test_an_inferred_schema_loses_nothing() -> None:
    schema = st.StructType().add("a", LONG)
    assert decoded(b'{"A": 1}', schema, inferred=True) == ({"a": 1}, None)
    assert decoded(b'{"a": 1, "x": null, "y": [], "z": {"v": [{}]}}', schema, inferred=True) == (
        {"a": 1},
        None,
    )
    assert decoded(b'{"a": 1, "A": 2}', schema, inferred=True)[1] == (
        "value.A: stands twice in its object, but for case"
    )
    assert decoded(b'{"a": 1, "x": 5}', schema, inferred=True)[1] == (
        "value.x: is a field that the table's type does not have and could not be given"
    )


def test_values_need_not_be_objects() -> None:
    assert decoded(b" 5 ", LONG) == (5, None)
    assert decoded(b'["a"]', st.ArrayType(STRING)) == (["a"], None)
    assert (
        decoded(b'[{"a": 1}]', st.StructType().add("a", LONG))[1] == "value: is an array, and not an object"
    )
    assert decoded(b"null", st.StructType().add("a", LONG)) == (None, None)


def test_framing_is_taken_off() -> None:
    schema = st.StructType().add("a", LONG)
    framed = b'\0\0\0\0\7{"a": 1}'
    assert decoded(framed, schema, framing=Framing.AUTO) == ({"a": 1}, None)
    assert decoded(framed, schema, framing=Framing.CONFLUENT) == ({"a": 1}, None)
    assert decoded(b'{"a": 1}', schema, framing=Framing.AUTO) == ({"a": 1}, None)
    assert decoded(framed, schema)[1] == "value: is not JSON: Expecting value at character 0"
    assert decoded(b'{"a": 1}', schema, framing=Framing.CONFLUENT)[1] == (
        "value: begins with byte 123, and Confluent's framing begins with magic byte 0"
    )
