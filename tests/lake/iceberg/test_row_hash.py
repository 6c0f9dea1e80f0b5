"""Hashes of rows: equal for what is equal, whatever Arrow's types and slices; different for everything else."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.arrow.columns import ARROW_HEADERS
from kafscale.lake.iceberg.row_hash import column_hashes

LARGE_HEADERS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
pairs = st.fixed_dictionaries(
    {"key": st.none() | st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}
)


@given(st.lists(st.none() | st.binary(max_size=9), max_size=20), st.integers(0, 5))
def test_equal_bytes_have_equal_hashes(values: list[bytes | None], start: int) -> None:
    plain = column_hashes(pa.array(values, pa.binary())).tolist()
    assert column_hashes(pa.array(values, pa.large_binary()).slice(start)).tolist() == plain[start:]
    assert len(set(plain)) == len(set(values))


@given(st.lists(st.none() | st.lists(pairs, max_size=3), max_size=10), st.integers(0, 3))
def test_equal_headers_have_equal_hashes(values: list[Any], start: int) -> None:
    stored = pa.array(values, ARROW_HEADERS)
    plain = column_hashes(stored).tolist()
    assert column_hashes(pa.array(values, LARGE_HEADERS).slice(start)).tolist() == plain[start:]
    # pyiceberg reads null lists as empty ones: the two count as one.
    assert len(set(plain)) == len({repr(value or None) for value in stored.to_pylist()})


@pytest.mark.parametrize(
    "values",
    [
        [None, 0, 1, -1, 2**62],
        [None, "", "a", "b", "ab", "ba", "a\0", "\0a"],
    ],
)
def test_different_values_have_different_hashes(values: list[Any]) -> None:
    assert len(set(column_hashes(pa.array(values)).tolist())) == len(values)


def test_text_has_the_hash_of_its_bytes() -> None:
    texts = column_hashes(pa.array(["ä", "", None])).tolist()
    assert texts == column_hashes(pa.array(["ä".encode(), b"", None])).tolist()
