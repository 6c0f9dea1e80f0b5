"""The map of keys: a dictionary of fixed size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.log.compaction.offset_map import NO_OFFSET, SLOT_BYTES, OffsetMap


@given(st.lists(st.binary(max_size=4), max_size=200))
def test_it_has_the_newest_offset_of_each_key(keys: list[bytes]) -> None:
    offsets, expected = OffsetMap(1 << 16, len(keys), b"secret"), dict[bytes, int]()
    for offset, key in enumerate(keys):
        offsets.put(key, offset)
        expected[key] = offset
    assert {key: offsets.get(key) for key in expected} == expected
    assert offsets.get(b"never there") == NO_OFFSET
    assert offsets.key_count == len(expected)
    assert offsets.latest_offset == len(keys) - 1


def test_a_full_map_takes_known_keys_only() -> None:
    offsets = OffsetMap(100 * SLOT_BYTES, 1000, b"secret")
    room = offsets.room()
    assert room == 90
    for number in range(room):
        offsets.put(b"%d" % number, number)
    offsets.put(b"0", 1000)
    with pytest.raises(OverflowError, match="90 keys"):
        offsets.put(b"another", 1001)
    assert offsets.get(b"0") == 1000
    assert offsets.get(b"another") == NO_OFFSET


def test_few_keys_take_little_memory() -> None:
    assert OffsetMap(1 << 30, 10, b"secret").room() < 100
