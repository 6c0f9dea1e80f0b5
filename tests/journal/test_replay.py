"""One reading of a journal's heads gives every partition what is behind its record."""

import uuid

import pytest

from kafscale.errors import CorruptDataError
from kafscale.formats.journal_entry import EntryHead, EntrySlice
from kafscale.journal.replay import EntryMissingError, Replay

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
HEAD_BYTES = 500


def one(topic_id: uuid.UUID, base: int, last: int) -> EntrySlice:
    return EntrySlice(
        topic_id=topic_id,
        topic="a" if topic_id == A else "b",
        partition=0,
        leader_epoch=1,
        base_offset=base,
        last_offset=last,
        record_count=last - base + 1,
        max_timestamp_ms=-1,
        size_bytes=60,
        body_crc=0,
    )


def heads(*entries: tuple[EntrySlice, ...] | None) -> dict[int, tuple[EntryHead, int]]:
    """By sequence; None is one that is gone."""
    return {
        sequence: (
            EntryHead(
                journal_id="1-a",
                broker_id=1,
                sequence=sequence,
                committed_through=sequence - 1,
                created_ms=0,
                slices=slices,
            ),
            HEAD_BYTES,
        )
        for sequence, slices in enumerate(entries)
        if slices is not None
    }


def replay(*entries: tuple[EntrySlice, ...] | None, progress: int = -1) -> Replay:
    return Replay("1-a", heads(*entries), first=0, end=len(entries), progress=progress)


def test_each_partition_gets_what_is_behind_its_own_position() -> None:
    found = replay((one(A, 0, 4), one(B, 0, 0)), (one(B, 1, 1),), (one(A, 5, 5),))
    assert set(found.partitions()) == {(A, 0), (B, 0)}
    assert [(each.sequence, each.head_bytes) for each in found.behind(A, 0, -1, 0)] == [
        (0, HEAD_BYTES),
        (2, HEAD_BYTES),
    ]
    assert [each.slice.base_offset for each in found.behind(A, 0, 0, 5)] == [5]
    assert found.behind(B, 0, 1, 2) == ()
    assert found.behind(uuid.UUID(int=3), 0, -1, 0) == ()
    assert found.last_hole is None


def test_what_does_not_follow_the_record_is_an_error() -> None:
    found = replay((one(A, 0, 4),), (one(A, 5, 5),))
    with pytest.raises(
        CorruptDataError, match=r"entry 1 of journal 1-a: .* offset 5, the log before it ends at 4"
    ):
        found.behind(A, 0, 0, 4)


def test_a_collected_entry_is_a_hole_and_another_gap_an_error() -> None:
    found = replay((one(A, 0, 4),), None, (one(B, 0, 0),), progress=1)
    assert found.last_hole == 1
    assert len(found.behind(B, 0, -1, 0)) == 1
    with pytest.raises(EntryMissingError, match="entry 1 of journal 1-a is gone"):
        replay((one(A, 0, 4),), None, progress=0)


def test_entries_outside_of_the_range_do_not_count() -> None:
    found = Replay(
        "1-a", heads((one(A, 0, 0),), (one(A, 1, 1),), (one(A, 2, 2),)), first=1, end=2, progress=-1
    )
    assert [each.sequence for each in found.behind(A, 0, 0, 1)] == [1]
