"""Offsets of many partitions come back from their short text, and no other text is taken for one."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.lake import packed_offsets
from kafscale.lake.packed_offsets import pack_offsets, unpack_offsets
from kafscale.lake.ranges import Ranges, union

offsets = st.integers(0, 2**63 - 1)
partitions = st.integers(0, 2**31 - 1)
ranges = st.lists(st.tuples(offsets, offsets), max_size=5).map(union)
by_partition = st.dictionaries(partitions, ranges.filter(bool), max_size=20)


@given(st.dictionaries(partitions, offsets), by_partition, by_partition)
def test_packed_offsets_are_read_back(
    starts: dict[int, int], exported: dict[int, Ranges], gaps: dict[int, Ranges]
) -> None:
    assert unpack_offsets(pack_offsets(starts, exported, gaps), 2) == (starts, [exported, gaps])


@given(st.text() | st.binary().map(lambda raw: base64.b64encode(zlib.compress(raw)).decode()))
def test_another_text_is_refused_or_legal(text: str) -> None:
    try:
        starts, sets = unpack_offsets(text, 2)
    except ValueError:
        return
    assert unpack_offsets(pack_offsets(starts, *sets), 2) == (starts, sets)


def test_a_thousand_even_partitions_take_three_kilobytes() -> None:
    exported: dict[int, Ranges] = {index: ((0, 1_000_000 + index * 37 % 1000),) for index in range(1000)}
    assert len(pack_offsets(dict.fromkeys(exported, 0), exported, {})) < 3_000


@pytest.mark.parametrize(
    "raw",
    [
        b"\x05",  # a column of five integers, of which none is there
        b"\x01\x80",  # cut off within an integer
        b"\xff" * 12,  # an integer of more than ten bytes
        b"\x01\x00\x00",  # a partition without a start
        b"\x00\x00\x01\x00\x01\x04\x02\x00\x01",  # a range of a negative length
        b"\x00\x00\x02\x00\x00\x02\x02\x02\x04\x00\x02\x00\x02" + b"\x00" * 3,  # one partition twice
        b"\x00" * 9,  # more columns than there are
    ],
)
def test_columns_that_do_not_fit_are_refused(raw: bytes) -> None:
    text = base64.b64encode(zlib.compress(raw)).decode()
    with pytest.raises(ValueError, match=r"\w"):
        unpack_offsets(text, 2)


def test_a_text_that_claims_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = pack_offsets({0: 0}, {0: ((0, 5),)}, {})
    monkeypatch.setattr(packed_offsets, "MOST_BYTES", 3)
    with pytest.raises(ValueError, match="too large"):
        unpack_offsets(text, 2)
