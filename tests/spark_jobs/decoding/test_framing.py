"""Confluent's framing: what is behind the header, and what is no header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decoding.framing import is_framed, message_indexes, schema_id, unframed_text
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.problems import UndecodableError

HEADER = b"\0\0\0\1\2"


def zigzag(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def test_the_id_is_big_endian_behind_the_magic_byte() -> None:
    assert schema_id(HEADER + b"rest") == 258
    assert schema_id(b"\0\xff\xff\xff\xff") == 2**32 - 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "value: is empty, and Confluent's framing has at least 5 bytes"),
        (b"\1\0\0\0\1", "value: begins with byte 1, and Confluent's framing begins with magic byte 0"),
        (b"\0\0\0\1", "value: has 4 bytes, and Confluent's framing has at least 5"),
    ],
)
def test_what_is_no_header_says_so(data: bytes, reason: str) -> None:
    assert not is_framed(data)
    with pytest.raises(UndecodableError) as raised:
        schema_id(data)
    assert raised.value.reason() == reason


def test_text_and_framed_text_differ_by_the_first_byte() -> None:
    assert unframed_text(b"{}", Framing.AUTO) == b"{}"
    assert unframed_text(HEADER + b"{}", Framing.AUTO) == b"{}"
    assert unframed_text(HEADER + b"{}", Framing.CONFLUENT) == b"{}"
    assert unframed_text(HEADER + b"{}", Framing.NONE) == HEADER + b"{}"
    assert unframed_text(b"", Framing.AUTO) == b""
    for framing, data in ((Framing.CONFLUENT, b"{}"), (Framing.AUTO, b"\0{}")):
        with pytest.raises(UndecodableError):
            unframed_text(data, framing)


def test_no_indexes_stand_for_the_first_message() -> None:
    assert message_indexes(HEADER + b"\0rest", 5) == ((0,), 6)


@given(indexes=st.lists(st.integers(0, 2**40), min_size=1, max_size=9), rest=st.binary())
def test_indexes_are_read_as_they_are_written(indexes: list[int], rest: bytes) -> None:
    data = b"".join(map(zigzag, [len(indexes), *indexes]))
    assert message_indexes(data + rest, 0) == (tuple(indexes), len(data))


@given(data=st.binary(max_size=30))
def test_any_bytes_have_indexes_or_a_reason(data: bytes) -> None:
    try:
        indexes, position = message_indexes(data, 0)
    except UndecodableError as problem:
        assert problem.reason().startswith("value: ")
    else:
        assert indexes and min(indexes) >= 0 and position <= len(data)


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x01", b"\x02\x01", b"\xd0\x0f", b"\xff" * 11])
def test_what_is_no_index_says_so(data: bytes) -> None:
    with pytest.raises(UndecodableError):
        message_indexes(data, 0)
