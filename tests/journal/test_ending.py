"""The steps by which a journal is ended. That they are the right ones, the model shows (`tests/sim/journal`)."""

from kafscale.formats.journal_record import JournalRecord
from kafscale.journal.ending import (
    LEAP,
    Ended,
    Leap,
    Look,
    Note,
    Probe,
    begun,
    found_fence,
    leapt,
    leapt_too_short,
    looked,
    note_failed,
    noted,
    passed,
)


def record(progress: int, ended_at: int | None = None) -> JournalRecord:
    return JournalRecord(broker_id=1, progress=progress, ended_at=ended_at)


def test_it_leaps_ahead_and_begins_behind_the_progress() -> None:
    first = begun(record(6))
    assert first == Leap(7, 7 + LEAP)
    assert isinstance(first, Leap)
    assert leapt(first) == Probe(7)


def test_a_leap_that_is_too_short_is_doubled() -> None:
    step = leapt_too_short(Leap(7, 7 + 4))
    assert step == Leap(7, 7 + 8)
    assert leapt_too_short(Leap(7, 7)) == Leap(7, 8)


def test_an_end_that_is_noted_is_taken_over() -> None:
    assert begun(record(3, 5)) == Ended(5)
    assert looked(Look(7), record(3, 5)) == Ended(5)
    assert note_failed(Note(7), record(3, 5)) == Ended(5)


def test_entries_are_passed_and_a_fence_is_looked_at_twice() -> None:
    assert passed(Probe(3)) == Probe(4)
    assert found_fence(Probe(4)) == Look(4)
    assert looked(Look(4), record(3)) == Note(4)
    assert noted(Note(4)) == Ended(4)


def test_a_fence_where_an_entry_was_collected_does_not_count() -> None:
    assert looked(Look(4), record(4)) == Probe(5)
    assert looked(Look(4), record(9)) == Probe(10)
    assert note_failed(Note(4), record(9)) == Probe(10)


def test_steps_of_different_kinds_are_different() -> None:
    assert len({Probe(1), Look(1), Note(1), Ended(1)}) == 4
