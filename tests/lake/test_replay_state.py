"""The list of replayed dead letters as a table keeps it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.lake.replay_state import ReplayState, ReplayStateError, decode_replay, encode_replay, ranges_of


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 40))))
def test_every_place_is_in_the_list_once(places: set[tuple[int, int]]) -> None:
    state = ReplayState(commit_id="c", dead_letter_table="l.d.t", offsets=ranges_of(places))
    found = decode_replay("orders", encode_replay(state))
    assert found == state
    listed = [
        (partition, offset)
        for partition, ranges in found.offsets.items()
        for first, following in ranges
        for offset in range(first, following)
    ]
    assert sorted(listed) == sorted(places)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":1}', '{"version":1,"offsets":{"x":[]}}'])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ReplayStateError, match=r"kafscale.replay.orders is not of a replay"):
        decode_replay("orders", text)


def test_a_list_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ReplayStateError, match="has version 2; this program knows 1"):
        decode_replay("orders", '{"version":2}')
