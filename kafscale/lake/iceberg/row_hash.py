"""Hashes of the rows of a topic and of a table, without an object for each: 64 bits of every column.

A null, an empty value, lengths and places in lists count. An empty list counts as null, because pyiceberg reads
null lists as empty ones. For one program only: nothing stores a hash.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafscale.arrow.compiled import compiled, inlined

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_SEED: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x00000100000001B3)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)

Hashes = Any
"""A numpy array of unsigned 64-bit numbers."""


@inlined
def _mixed(value: Any) -> Any:
    value = (value ^ (value >> _S30)) * _FIRST
    value = (value ^ (value >> _S27)) * _SECOND
    return value ^ (value >> _S31)


@compiled("void(int64[::1], uint8[::1], boolean[::1], uint64[::1])")
def _hash_bytes(offsets: Any, data: Any, valid: Any, out: Any) -> None:
    for row in range(out.size):
        if not valid[row]:
            out[row] = _NULL
            continue
        found = _SEED ^ np.uint64(offsets[row + 1] - offsets[row])
        for place in range(offsets[row], offsets[row + 1]):
            found = (found ^ np.uint64(data[place])) * _PRIME
        out[row] = _mixed(found)


@compiled("void(int64[::1], uint64[::1], boolean[::1], uint64[::1])")
def _hash_lists(offsets: Any, elements: Any, valid: Any, out: Any) -> None:
    for row in range(out.size):
        found = _NULL
        if valid[row]:
            for place in range(offsets[row], offsets[row + 1]):
                found = _mixed(found ^ elements[place]) * _PRIME
        out[row] = found


def column_hashes(column: pa.Array) -> Hashes:
    """A hash for each value: of bytes, text, whole numbers, times, and lists of structs of these."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_lists(column)
    if pa.types.is_struct(kind):
        return row_hashes([column_hashes(column.field(place)) for place in range(kind.num_fields)])
    if pa.types.is_timestamp(kind):
        return _of_numbers(column.cast(pa.int64()))
    if pa.types.is_integer(kind):
        return _of_numbers(column.cast(pa.int64()))
    return _of_bytes(column)


def row_hashes(columns: Sequence[Hashes]) -> Hashes:
    """One hash for each row, of the hashes of its columns, in this order."""
    found = np.full(len(columns[0]), _SEED, np.uint64)
    for one in columns:
        found = _mixed_array(found ^ one) * _PRIME
    return found


def _mixed_array(values: Hashes) -> Hashes:
    values = (values ^ (values >> _S30)) * _FIRST
    values = (values ^ (values >> _S27)) * _SECOND
    return values ^ (values >> _S31)


def _of_numbers(column: pa.Array) -> Hashes:
    found = _mixed_array(column.fill_null(0).to_numpy().astype(np.uint64) ^ _SEED)
    return np.where(_valid(column), found, _NULL)


def _of_bytes(column: pa.Array) -> Hashes:
    plain = column.cast(pa.large_binary())
    _, offsets, data = plain.buffers()
    places = np.array(np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1])
    # Copies, because compiled functions take no memory that must not be written to.
    known = np.zeros(0, np.uint8) if data is None else np.array(np.frombuffer(data, np.uint8))
    out = np.empty(len(plain), np.uint64)
    _hash_bytes(places, known, _valid(plain), out)
    return out


def _of_lists(column: pa.Array) -> Hashes:
    offsets = np.array(column.offsets.to_numpy(), np.int64)
    out = np.empty(len(column), np.uint64)
    _hash_lists(offsets, column_hashes(column.values), _valid(column), out)
    return out


def _valid(column: pa.Array) -> Any:
    return np.array(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
