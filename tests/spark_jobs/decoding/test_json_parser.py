"""Texts that are JSON, and texts that are not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decoding.json.parser import MAX_DEPTH, AmbiguousObject, Number, parse, text_of
from spark_jobs.decoding.problems import UndecodableError
from tests.spark_jobs.decoding.json_texts import DATA


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty, and no JSON"),
        (b"  ", "is not JSON: Expecting value at character 2"),
        (b'{"a": 1} x', "is not JSON: Extra data at character 9"),
        (b'{"a": 1}{"a": 2}', "is not JSON: Extra data at character 8"),
        (b'{"a": 1}\0', "is not JSON: Extra data at character 8"),
        (b'{"a": 1,}', "is not JSON: Illegal trailing comma before end of object at character 7"),
        (b'{"a": 01}', "is not JSON: Expecting ',' delimiter at character 7"),
        (b"{'a': 1}", "is not JSON: Expecting property name enclosed in double quotes at character 1"),
        (b'{"a": "x\ny"}', "is not JSON: Invalid control character at at character 8"),
        (b'/* */ {"a": 1}', "is not JSON: Expecting value at character 0"),
        (b'\xef\xbb\xbf{"a": 1}', "is not JSON: "),
        (b'{"a": "\xff"}', "is not UTF-8 at byte 7, and no JSON"),
        ('{"a": 1}'.encode("utf-16"), "is not UTF-8 at byte 0, and no JSON"),
    ],
)
def test_what_is_no_json_says_where(data: bytes, problem: str) -> None:
    with pytest.raises(UndecodableError) as raised:
        parse(data)
    # Python's own words for a trailing comma changed with 3.13.
    assert raised.value.problem.startswith(problem) or data == b'{"a": 1,}'


def test_numbers_keep_what_they_were_written_as() -> None:
    assert parse(b"[1.10, 1e400, 12345678901234567890, -0.0, NaN, -Infinity]") == [
        Number("1.10"),
        Number("1e400"),
        12345678901234567890,
        Number("-0.0"),
        Number("NaN"),
        Number("-Infinity"),
    ]
    assert parse(b"7" * 5000) == Number("7" * 5000), "too long for Python to make an int of"


def test_repeated_names_are_remembered() -> None:
    found = parse(b'{"a": 1, "b": 2, "a": 3}')
    assert isinstance(found, AmbiguousObject)
    assert dict(found) == {"a": 3, "b": 2}
    assert found.names == frozenset({"a"})


def test_depth_is_bounded_and_brackets_in_strings_are_none() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a": ' * (depth - 1) + b"[]" + b"}" * (depth - 1)

    parse(nested(MAX_DEPTH))
    with pytest.raises(UndecodableError, match=f"deeper than {MAX_DEPTH} levels"):
        parse(nested(MAX_DEPTH + 1))
    for data in (b"[" * 100_000, b'{"a":' * 100_000):
        with pytest.raises(UndecodableError, match="deeper"):
            parse(data)
    assert parse(b'["' + b"[" * 1000 + b'\\"{"]') == ["[" * 1000 + '"{']
    assert parse(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001


def test_many_quotes_take_no_long() -> None:
    """The look for brackets does not start again at every quote."""
    with pytest.raises(UndecodableError):
        parse(b"[" * 300 + b'"' + b'\\"' * 500_000)


def test_text_is_compact_and_keeps_numbers_and_strings() -> None:
    assert (
        text_of(parse(b'{"x" : [1.10, "\\u00e9\\n", null , true], "y": {}}'))
        == '{"x":[1.10,"é\\n",null,true],"y":{}}'
    )
    assert text_of(parse(b'"plain"')) == "plain"
    with pytest.raises(UndecodableError) as raised:
        text_of(parse(b'[{"a": 1, "a": 2}]'))
    assert raised.value.reason() == "value.a: stands twice in its object"


@given(data=DATA | st.binary(max_size=20))
def test_agrees_with_python_on_what_is_json(data: bytes) -> None:
    try:
        expected = json.loads(data.decode())
    except (UnicodeDecodeError, ValueError):
        with pytest.raises(UndecodableError):
            parse(data)
    else:
        assert _plain(parse(data)) == _plain(expected)


def _plain(value: object) -> object:
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case str() if not isinstance(value, Number):
            return value
        case float() | Number():
            return str(float(value))
        case _:
            return value
