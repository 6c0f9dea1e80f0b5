"""Needs of an entry: a record that names it, and one that lacks a slice of it."""

import uuid

from kafscale.formats.journal_keys import entry_key
from kafscale.formats.partition_record import JournalPosition, PartitionRecord, SegmentReference
from kafscale.log.journal.needs import EntrySummary, Needs

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
ENTRIES = {
    0: EntrySummary(-1, frozenset({(A, 0), (B, 0)})),
    1: EntrySummary(0, frozenset({(A, 0)})),
    2: EntrySummary(1, frozenset({(B, 0)})),
}


def record(topic_id: uuid.UUID, sequence: int, *named: int, journal: str = "j") -> PartitionRecord:
    references = tuple(
        SegmentReference(
            base_offset=one,
            last_offset=one,
            record_count=1,
            leader_epoch=0,
            size_bytes=60,
            max_timestamp_ms=-1,
            object_key=entry_key("default", "j", one),
            start=100,
        )
        for one in named
    )
    position = JournalPosition(journal_id=journal, sequence=sequence, topic_id=topic_id)
    return PartitionRecord(leader_epoch=0, segments=references, journal=position)


def needed(*records: PartitionRecord) -> set[int]:
    needs = Needs()
    for one in records:
        needs.add(0, one)
    return set(needs.of("j", ENTRIES))


def test_without_records_nothing_is_needed() -> None:
    assert needed() == set()


def test_a_named_entry_is_needed() -> None:
    assert needed(record(A, 1, 0)) == {0}


def test_entries_with_a_slice_behind_the_position_are_needed() -> None:
    assert needed(record(A, -1)) == {0, 1}
    assert needed(record(A, 0), record(B, 0)) == {1, 2}


def test_a_quiet_partition_keeps_no_entry_of_others() -> None:
    assert needed(record(uuid.UUID(int=3), -1)) == set()


def test_a_partition_that_goes_on_elsewhere_needs_what_it_names() -> None:
    assert needed(record(A, -1, 1, journal="other")) == {1}


def test_a_journal_without_a_need_is_not_named() -> None:
    needs = Needs()
    needs.add(0, record(A, 5, journal="other"))
    assert needs.is_named("other")
    assert not needs.is_named("j")
