"""JSON for variants: what is no JSON, or would be another value as a variant, is a dead letter."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decoding.json.parser import AmbiguousObject, Number, parse
from spark_jobs.decoding.json.variant import VariantFormat, _checked
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.problems import UndecodableError
from tests.spark_jobs.decoding.json_texts import DATA

GOOD = [
    b'{"a": {"b": [1, 2.5, null, true, "\xe2\x82\xac"]}}',
    b" [1] ",
    b"null",
    b"5",
    b'"text"',
    b'{"a": 1, "b": {"a": 1}, "c": [{"a": 1}, {"a": 2}]}',
    b'{"big": ' + b"9" * 38 + b', "small": 1e-300, "large": 1e300}',
    json.dumps({f"field {number}": number for number in range(400)}).encode(),
    b"[" * 150 + b"]" * 150,
    b'{"pair": "\\ud83d\\ude00"}',
]
BAD = {
    b'{"a": 1} x': "value: is not JSON: Extra data at character 9",
    b'{"a": 1}{"b": 2}': "value: is not JSON: Extra data at character 8",
    b'{"a": 1e400}': "value.a: is '1e400', and not a number that a double can hold",
    b'{"a": [0, NaN]}': "value.a[1]: is NaN, which is no JSON",
    b'{"a": {"b": 1, "c": 0, "b": 2}}': "value.a.b: stands twice in its object",
    b'{"a": "\\ud800"}': "value.a: has half a surrogate pair at character 0",
    b"1" * 39: "value: is " + "1" * 39 + ", and a variant holds whole numbers of up to 38 digits",
    b"": "value: is empty, and no JSON",
    b"\xff": "value: is not UTF-8 at byte 0, and no JSON",
    b"[" * 201 + b"]" * 201: "value: is nested deeper than 200 levels",
}


def test_values_and_reasons() -> None:
    column = pa.array([*GOOD, None, *BAD] * 2, pa.binary())
    decoded = VariantFormat(framing=Framing.NONE).open().decode(column)
    assert decoded.values.to_pylist() == [*(one.decode() for one in GOOD), None, *[None] * len(BAD)] * 2
    assert decoded.errors == [*[None] * len(GOOD), None, *BAD.values()] * 2


def test_framing_is_taken_off() -> None:
    column = pa.array([b"\0\0\0\0\7[1]", b"[2]"], pa.binary())
    decoded = VariantFormat(framing=Framing.AUTO).open().decode(column)
    assert decoded.values.to_pylist() == ["[1]", "[2]"]
    decoded = VariantFormat(framing=Framing.CONFLUENT).open().decode(column)
    assert [error is None for error in decoded.errors] == [True, False]


@given(values=st.lists(DATA | st.none(), max_size=6))
def test_the_walk_takes_nothing_that_the_parser_refuses(values: list[bytes | None]) -> None:
    decoded = VariantFormat(framing=Framing.NONE).open().decode(pa.array(values, pa.binary()))
    for value, error in zip(values, decoded.errors, strict=True):
        reason = None
        if value is not None:
            try:
                _checked(value)
            except UndecodableError as problem:
                reason = problem.reason()
        assert error == reason


@pytest.mark.parametrize("good", [GOOD[0], GOOD[5]])
def test_usual_values_are_not_parsed(monkeypatch: pytest.MonkeyPatch, good: bytes) -> None:
    def refuse(_: bytes) -> object:
        raise AssertionError

    monkeypatch.setattr("spark_jobs.decoding.json.variant.parse", refuse)
    decoded = VariantFormat(framing=Framing.AUTO).open().decode(pa.array([good], pa.binary()))
    assert decoded.errors == [None]


def test_the_parser_finds_what_the_check_relies_on() -> None:
    assert isinstance(parse(b'{"a": 1, "a": 2}'), AmbiguousObject)
    assert isinstance(parse(b"1.5"), Number)
