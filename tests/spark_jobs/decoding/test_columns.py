"""One value never stops a column, whatever goes wrong with it."""

import pyarrow as pa
import pytest

from spark_jobs.decoding.columns import decode_each
from spark_jobs.decoding.problems import UndecodableError, shown

COLUMN = pa.array([b"1", None, b"x", b"", b"300", b"5"], pa.binary())


def decode(data: bytes) -> object:
    if not data:
        raise UndecodableError("is empty", "f", 3, "a b", "\u20ac")
    return int(data)


def test_every_row_has_a_value_or_a_reason() -> None:
    decoded = decode_each(COLUMN, decode, pa.int8())
    assert decoded.values.to_pylist() == [1, None, None, None, None, 5]
    assert decoded.values.type == pa.int8()
    unforeseen, expected, stored = decoded.errors[2:5]
    assert unforeseen is not None and unforeseen.startswith("value: cannot be decoded: ValueError: ")
    assert expected == "value.f[3].'a b'.'\\u20ac': is empty"
    assert stored is not None and stored.startswith("value: cannot be stored: ")
    assert [decoded.errors[row] for row in (0, 1, 5)] == [None, None, None]


def test_memory_that_runs_out_is_not_the_values_fault() -> None:
    def out_of_memory(_data: bytes) -> object:
        raise MemoryError

    with pytest.raises(MemoryError):
        decode_each(COLUMN, out_of_memory, pa.int8())


def test_reasons_are_one_short_line() -> None:
    assert shown("a\nb\u20ac") == "'a\\nb\\u20ac'"
    assert len(shown("x" * 10_000)) < 100
