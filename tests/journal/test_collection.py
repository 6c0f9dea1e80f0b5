"""A journal's deletable entries, and its committed ones by objects alone. More in the model (`tests/sim/journal`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.journal_record import JournalRecord
from kafscale.journal.collection import collectable, counted_through

DECLARED = {0: -1, 1: 0, 2: 0, 3: 2, 4: 2}


@pytest.mark.parametrize(
    ("progress", "committed_through", "needed", "expected"),
    [
        pytest.param(4, 4, (), {0, 1, 2}, id="up to what an entry declares"),
        pytest.param(1, 4, (), {0, 1}, id="up to the progress"),
        pytest.param(4, 2, (), {0}, id="only what a committed entry declares"),
        pytest.param(4, 4, (1,), {0, 2}, id="nothing that is needed"),
        pytest.param(-1, 4, (), set(), id="nothing before there is progress"),
    ],
)
def test_entries_may_be_deleted(
    progress: int, committed_through: int, needed: tuple[int, ...], expected: set[int]
) -> None:
    record = JournalRecord(broker_id=1, progress=progress)
    assert collectable(record, committed_through, DECLARED, needed) == expected


def test_behind_the_fence_nothing_declares_anything() -> None:
    record = JournalRecord(broker_id=1, progress=2, ended_at=3)
    assert collectable(record, 10, DECLARED, ()) == {0}


@given(st.sets(st.integers(0, 30)), st.integers(-1, 30), st.data())
def test_what_is_left_still_counts_all_that_is_committed(
    needed: set[int], progress: int, data: st.DataObject
) -> None:
    declared = {
        sequence: data.draw(st.integers(-1, sequence - 1))
        for sequence in range(data.draw(st.integers(0, 30)))
    }
    newest = len(declared) - 1
    assert counted_through(declared) == newest
    record = JournalRecord(broker_id=1, progress=min(progress, newest))
    gone = collectable(record, newest, declared, needed)
    assert not gone & needed
    assert newest not in gone
    left = {sequence: through for sequence, through in declared.items() if sequence not in gone}
    assert counted_through(left) == newest


def test_a_gap_above_every_declaration_is_the_end() -> None:
    assert counted_through({}) == -1
    assert counted_through({0: -1, 2: -1}) == 0
    assert counted_through({4: 2, 5: 3, 7: 3}) == 5
    assert counted_through({1: 0, 7: 5}) == 5
