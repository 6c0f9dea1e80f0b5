"""Zigzag varints against kafka-python's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint, encode_varint

from kafscale.protocol.varint import MAX_VARLONG_BYTES, append_varint, read_varint, varint_size

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)


@given(INT64)
def test_both_codecs_agree(value: int) -> None:
    ours, theirs = bytearray(b"x"), bytearray()
    append_varint(ours, value)
    encode_varint(value, theirs.append)
    assert ours[1:] == theirs
    assert varint_size(value) == len(theirs)
    assert read_varint(bytes(ours) + b"\xff", 1, MAX_VARLONG_BYTES) == (value, len(ours))
    assert decode_varint(ours, 1) == (value, len(ours))


@pytest.mark.parametrize("length", range(5))
def test_a_varint_without_an_end_is_refused(length: int) -> None:
    with pytest.raises(IndexError):
        read_varint(b"\x80" * length, 0)


def test_a_varint_longer_than_its_type_is_refused() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x0f", 0) == (-(2**31), 5)
    with pytest.raises(ValueError, match="longer than 5"):
        read_varint(b"\x80\x80\x80\x80\x80\x00", 0)
    with pytest.raises(ValueError, match="longer than 10"):
        read_varint(b"\x80" * 10 + b"\x00", 0, MAX_VARLONG_BYTES)
