"""Bytes in pieces read like the same bytes in one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.memory.pieces import Pieces

FIELDS = struct.Struct(">hi")


@given(st.lists(st.binary(max_size=8), max_size=8), st.integers(0, 40), st.data())
def test_pieces_read_like_one(parts: list[bytes], first: int, data: st.DataObject) -> None:
    whole = b"".join(parts)
    pieces = Pieces([memoryview(part) for part in parts], first)
    assert pieces.end == first + len(whole)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole) + 5))
    assert b"".join(pieces.slices(first + start, first + end)) == whole[start:end]
    assert pieces.contiguous(first + start, first + end) == whole[start:end]
    if start + FIELDS.size <= len(whole):
        assert pieces.unpack(FIELDS, first + start) == FIELDS.unpack_from(whole, start)
    elif start < len(whole):
        with pytest.raises(struct.error):
            pieces.unpack(FIELDS, first + start)
