"""Kafka's unsigned varints, which carry every length and count of the flexible versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.protocol.wire import (
    MAX_STRING_BYTES,
    MAX_TAGGED_FIELDS,
    MalformedRequestError,
    compact_string,
    read_nullable_compact_string,
    read_uvarint,
    skip_tagged_fields,
    uvarint,
)


@given(value=st.integers(0, 2**31 - 1), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_what_is_written_reads_the_same(value: int, before: bytes, after: bytes) -> None:
    encoded = uvarint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    data = memoryview(before + encoded + after)
    assert read_uvarint(data, len(before)) == (value, len(before) + len(encoded))


def test_known_encodings() -> None:
    assert [uvarint(value) for value in (0, 127, 128, 300)] == [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"]


def test_needless_bytes_are_accepted_up_to_five() -> None:
    assert read_uvarint(b"\x81\x80\x80\x80\x00", 0) == (1, 5)
    with pytest.raises(MalformedRequestError):
        read_uvarint(b"\x81\x80\x80\x80\x80\x00", 0)


def test_more_than_31_bits_are_refused() -> None:
    assert read_uvarint(b"\xff\xff\xff\xff\x07", 0) == (2**31 - 1, 5)
    with pytest.raises(MalformedRequestError, match="varint at byte 0 is larger than 2147483647"):
        read_uvarint(b"\x80\x80\x80\x80\x08", 0)


def test_the_end_of_the_data_is_an_index_error() -> None:
    for data in (b"", b"\x80", b"\xff\xff\xff\xff"):
        with pytest.raises(IndexError):
            read_uvarint(data, 0)


def section(count: int) -> bytes:
    """A section of empty tagged fields."""
    return uvarint(count) + b"".join(uvarint(tag) + b"\x00" for tag in range(count))


def test_tagged_fields_count_as_elements() -> None:
    data = section(3)
    assert skip_tagged_fields(data, 0, 3) == (len(data), 0)
    assert skip_tagged_fields(b"\x00", 0, 0) == (1, 0)
    with pytest.raises(MalformedRequestError, match="array elements and tagged fields"):
        skip_tagged_fields(data, 0, 2)


def test_too_many_tagged_fields_are_refused_before_the_walk() -> None:
    data = section(MAX_TAGGED_FIELDS)
    assert skip_tagged_fields(data, 0, 1000) == (len(data), 1000 - MAX_TAGGED_FIELDS)
    with pytest.raises(MalformedRequestError, match="65 tagged fields, the most is 64"):
        skip_tagged_fields(section(MAX_TAGGED_FIELDS + 1), 0, 1000)
    with pytest.raises(MalformedRequestError, match="claims 60 elements"):
        skip_tagged_fields(uvarint(60) + bytes(119), 0, 1000)


def test_compact_strings_are_as_short_as_other_strings() -> None:
    """As in Kafka, whose generated readers refuse more than 32,767 bytes."""
    longest = compact_string("x" * MAX_STRING_BYTES)
    assert read_nullable_compact_string(longest, 0) == ("x" * MAX_STRING_BYTES, len(longest))
    with pytest.raises(MalformedRequestError, match="has 32768 bytes, the most is 32767"):
        read_nullable_compact_string(compact_string("x" * (MAX_STRING_BYTES + 1)), 0)
