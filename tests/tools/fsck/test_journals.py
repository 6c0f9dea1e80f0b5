"""Findings of a check in journals, gathered objects, and the records that name them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafscale.formats.journal_entry import EntryHead, head_bytes
from kafscale.formats.journal_keys import entry_key, gathered_key, journals_prefix
from kafscale.formats.journal_record import JournalRecord, encode_journal_record
from kafscale.formats.partition_record import JournalPosition, PartitionRecord, SegmentReference
from kafscale.journal.partition_state import slice_reference
from kafscale.journal.replay import PlacedSlice
from kafscale.log.journal.heads import read_gathered_head, read_head
from kafscale.metadata import keys
from kafscale.tools.fsck.findings import FindingKind, FsckReport, JournalReport, JournalStanding
from kafscale.tools.fsck.repair_plan import RepairAction
from tests.tools.fsck.two_stores import NAMESPACE, TwoStores, kinds
from tests.tools.journal_objects import JOURNAL, Slice, put_entry, put_fence, put_gathered, slice_of
from tests.tools.recovery.recovery_bucket import batch

KEY = entry_key(NAMESPACE, JOURNAL, 0)


class Journals(TwoStores):
    """A topic `t` whose partition goes on in a journal of broker 1, whose lease is gone."""

    async def record_journal(
        self, progress: int, ended_at: int | None = None, journal_id: str = JOURNAL
    ) -> None:
        record = JournalRecord(broker_id=1, progress=progress, ended_at=ended_at)
        await self.put(keys.journal(journal_id), encode_journal_record(record))

    async def go_on(self, sequence: int = -1, journal_id: str = JOURNAL, **changes: object) -> None:
        """Have the record of `t` go on behind this entry."""
        position = JournalPosition(
            journal_id=journal_id, sequence=sequence, topic_id=slice_of("t", 0, batch(0, 1, 0)).row.topic_id
        )
        record: PartitionRecord = replace(await self.record(), journal=position, **changes)  # type: ignore[arg-type]
        await self.save("t", 0, record)

    async def name(self, *references: SegmentReference) -> None:
        """Have the record of `t` name these."""
        end = references[-1].last_offset + 1
        await self.save("t", 0, replace(await self.record(), segments=references, log_end_offset=end))

    async def reference(self, sequence: int) -> SegmentReference:
        """To the first slice of an entry."""
        head, size = await read_head(self.objects, entry_key(NAMESPACE, JOURNAL, sequence))
        assert isinstance(head, EntryHead)
        return slice_reference(NAMESPACE, JOURNAL, PlacedSlice(sequence, size, 0, head.slices[0]))

    async def write(self, count: int, *, first: int = 0) -> None:
        """Entries of one record of `t` each."""
        for sequence in range(first, first + count):
            await put_entry(self.objects, sequence, one(sequence))


def one(offset: int, topic: str = "t") -> Slice:
    """A slice of one record of an idempotent producer."""
    return slice_of(topic, 0, batch(offset, 1, 0, producer=(7, 0, offset)))


@pytest.fixture
async def stores() -> Journals:
    """Four entries, of which the record of `t` has the first two."""
    made = Journals()
    await made.found()
    await made.create_topic("t")
    await made.write(4)
    await made.record_journal(2)
    await made.name(await made.reference(0), await made.reference(1))
    await made.go_on(1)
    return made


def journal(report: FsckReport, journal_id: str = JOURNAL) -> JournalReport:
    return next(found for found in report.journals if found.journal_id == journal_id)


def details(report: FsckReport, kind: FindingKind) -> Sequence[str]:
    return [finding.detail for finding in report.all_findings if finding.kind is kind]


@pytest.mark.parametrize("verify", [False, True])
async def test_sound_journal_is_reported_and_no_problem(stores: Journals, verify: bool) -> None:
    report = await stores.check(verify=verify)
    assert kinds(report) == set()
    found = journal(report)
    assert (found.standing, found.progress, found.entries, found.slices) == (JournalStanding.OPEN, 2, 4, 4)
    assert found.needless == 0
    [partition] = report.partitions
    assert partition.log_end_offset == 4, "what is behind the record is published, also behind the progress"


async def test_entries_that_no_record_needs_are_counted(stores: Journals) -> None:
    await stores.name(await stores.reference(1))
    await stores.go_on(2, log_start_offset=1, log_end_offset=3)
    await stores.save(
        "t",
        0,
        replace(await stores.record(), segments=((await stores.reference(1)), (await stores.reference(2)))),
    )
    report = await stores.check()
    assert kinds(report) == set()
    assert journal(report).needless == 1


@pytest.mark.parametrize("position", [20, 70])
async def test_damaged_head_is_a_problem(stores: Journals, position: int) -> None:
    await stores.flip(entry_key(NAMESPACE, JOURNAL, 3), position)
    report = await stores.check()
    assert kinds(report) == {FindingKind.ENTRY_DAMAGED, FindingKind.JOURNAL_GAP}
    assert details(report, FindingKind.ENTRY_DAMAGED) == ["the CRC of the head does not match its bytes"]


async def test_entry_of_another_size_or_under_another_key_is_damaged(stores: Journals) -> None:
    cut = entry_key(NAMESPACE, JOURNAL, 3)
    await stores.change(cut, (await stores.objects.get(cut))[:-1])
    await stores.objects.put(entry_key(NAMESPACE, JOURNAL, 4), [await stores.objects.get(KEY)])
    report = await stores.check()
    whole = len(await stores.objects.get(entry_key(NAMESPACE, JOURNAL, 2)))
    assert details(report, FindingKind.ENTRY_DAMAGED) == [
        f"{whole - 1} bytes, its head says {whole}",
        f"it says that it is 0 of journal {JOURNAL}",
    ]


async def test_damaged_slice_is_found_where_every_byte_is_read(stores: Journals) -> None:
    key = entry_key(NAMESPACE, JOURNAL, 1)
    await stores.flip(key, head_bytes(key, await stores.objects.get(key)) + 40)
    assert kinds(await stores.check()) == set()
    report = await stores.check(verify=True)
    [finding] = report.all_findings
    assert (finding.kind, finding.subject, finding.key) == (FindingKind.SLICE_DAMAGED, "t-0", key)
    assert (finding.first_offset, finding.last_offset) == (1, 1)
    assert kinds(await stores.check("t", verify=True)) == {FindingKind.SLICE_DAMAGED}


@pytest.mark.parametrize(
    ("change", "says", "of_record"),
    [
        (
            {"record_count": 2, "last_offset": 4},
            "last offset 3, its row says 4; records 1, its row says 2",
            set(),
        ),
        ({"max_timestamp_ms": 5}, "largest timestamp", set()),
        ({"body_crc": 5}, "CRC of the body", set()),
        ({"leader_epoch": 9}, "leader epoch 0, its row says 9", {FindingKind.RECORD_INCONSISTENT}),
        ({"producers": one(4).row.producers}, "1 batches of idempotent producers", set()),
    ],
)
async def test_row_that_is_not_its_slice_is_a_problem(
    stores: Journals, change: dict[str, object], says: str, of_record: set[FindingKind]
) -> None:
    wrong = one(3)
    row = wrong.row._replace(**change)  # type: ignore[arg-type]
    await stores.objects.delete([entry_key(NAMESPACE, JOURNAL, 3)])
    await put_entry(stores.objects, 3, Slice(row, wrong.data))
    report = await stores.check(verify=True)
    assert kinds(report) == {FindingKind.SLICE_DIFFERS, *of_record}
    assert says in details(report, FindingKind.SLICE_DIFFERS)[0]


async def test_committed_entry_that_is_gone_is_a_problem(stores: Journals) -> None:
    await stores.write(3, first=4)
    await stores.objects.delete([entry_key(NAMESPACE, JOURNAL, 4)])
    report = await stores.check()
    assert details(report, FindingKind.ENTRY_MISSING) == ["entry 4"]


async def test_gap_that_was_collected_or_is_in_flight_is_none(stores: Journals) -> None:
    await stores.name(await stores.reference(1))
    await stores.go_on(1, log_start_offset=1)
    await stores.objects.delete([KEY])
    await put_entry(stores.objects, 5, one(5), committed_through=3)
    assert kinds(await stores.check()) == set()


async def test_gap_that_closes_before_the_second_look_is_none(stores: Journals) -> None:
    """An entry lands after its page was listed."""
    await put_entry(stores.objects, 5, one(5))
    late = stores.objects.list

    async def list_then_put(prefix: str):  # type: ignore[no-untyped-def]
        async for info in late(prefix):
            yield info
        if prefix == journals_prefix(NAMESPACE):
            await put_entry(stores.objects, 4, one(4))

    stores.objects.list = list_then_put  # type: ignore[method-assign]
    assert kinds(await stores.check()) == set()


async def test_newest_entry_that_is_gone_is_a_problem(stores: Journals) -> None:
    await stores.record_journal(8)
    report = await stores.check()
    assert details(report, FindingKind.JOURNAL_INCONSISTENT) == [
        "committed up to 8, and no object from there on is left"
    ]


async def test_ended_journal_is_sound_with_its_fence(stores: Journals) -> None:
    await put_fence(stores.objects, 4)
    await put_fence(stores.objects, 20)
    await put_entry(stores.objects, 5, one(9), committed_through=3)
    await stores.record_journal(2, ended_at=4)
    report = await stores.check(verify=True)
    assert kinds(report) == set()
    found = journal(report)
    assert (found.standing, found.ended_at, found.refused) == (JournalStanding.ENDED, 4, 1)


async def test_end_without_its_fence_is_a_problem(stores: Journals) -> None:
    await stores.record_journal(2, ended_at=4)
    report = await stores.check()
    assert details(report, FindingKind.JOURNAL_INCONSISTENT) == ["it ended at 4, where no fence lies"]
    await put_entry(stores.objects, 4, one(4))
    report = await stores.check()
    assert details(report, FindingKind.JOURNAL_INCONSISTENT) == ["it ended at 4, where an entry lies"]


async def test_end_that_loses_committed_entries_is_a_problem(stores: Journals) -> None:
    await put_fence(stores.objects, 4)
    await put_entry(stores.objects, 6, one(6), committed_through=5)
    await stores.record_journal(2, ended_at=4)
    report = await stores.check()
    assert details(report, FindingKind.JOURNAL_INCONSISTENT) == [
        "it ended at 4, and an entry declares 5 committed"
    ]


async def test_ended_journal_with_a_gap_keeps_its_partitions_away(stores: Journals) -> None:
    await stores.objects.delete([entry_key(NAMESPACE, JOURNAL, 3)])
    await put_fence(stores.objects, 4)
    await stores.record_journal(2, ended_at=4)
    report = await stores.check()
    assert kinds(report) == {FindingKind.ENTRY_MISSING, FindingKind.JOURNAL_GAP}


async def test_slices_that_do_not_follow_the_record_are_a_problem(stores: Journals) -> None:
    await stores.go_on(1, log_end_offset=7)
    report = await stores.check()
    assert kinds(report) == {FindingKind.JOURNAL_GAP}
    assert "begins at offset 2, the log before it ends at 7" in details(report, FindingKind.JOURNAL_GAP)[0]


async def test_position_that_the_journal_never_had_is_a_problem(stores: Journals) -> None:
    await stores.go_on(9)
    report = await stores.check()
    assert details(report, FindingKind.POSITION_BEYOND) == [
        f"entry 9 of journal {JOURNAL}, which has them up to 3"
    ]


async def test_journal_that_the_store_does_not_know_is_a_problem(stores: Journals) -> None:
    await stores.remove(keys.journal(JOURNAL))
    report = await stores.check()
    assert kinds(report) == {FindingKind.JOURNAL_UNKNOWN, FindingKind.POSITION_UNKNOWN}
    await stores.put(keys.journal(JOURNAL), b"?")
    assert FindingKind.JOURNAL_UNREADABLE in kinds(await stores.check())


async def test_reference_to_another_slice_is_a_problem(stores: Journals) -> None:
    reference = await stores.reference(1)
    await stores.name(
        await stores.reference(0), reference._replace(start=reference.start - 1, max_timestamp_ms=3)
    )
    await stores.go_on(1)
    report = await stores.check()
    assert kinds(report) == {FindingKind.REFERENCE_DIFFERS}
    [detail] = details(report, FindingKind.REFERENCE_DIFFERS)
    assert f"start {reference.start}, the record says {reference.start - 1}" in detail


async def test_entry_that_a_record_names_and_is_gone_is_missing(stores: Journals) -> None:
    await stores.objects.delete([KEY])
    report = await stores.check()
    assert kinds(report) == {FindingKind.SEGMENT_MISSING}


async def test_missing_slices_are_dropped_and_the_others_stay(stores: Journals) -> None:
    """Of entries behind the record, too, which no progress tells of yet."""
    await stores.objects.delete([KEY])
    outcomes = await stores.repair(drop_missing=True)
    assert [(one.repair.action, one.problem) for one in outcomes] == [(RepairAction.DROP_MISSING, "")]
    record = await stores.record()
    assert (record.log_start_offset, record.log_end_offset) == (1, 4)
    assert [one.object_key for one in record.segments] == [
        entry_key(NAMESPACE, JOURNAL, one) for one in (1, 2, 3)
    ]
    assert (record.checkpoint_end_offset, record.leader_epoch) == (1, 1)
    assert kinds(await stores.check(verify=True)) == set()


async def test_gathered_objects_are_checked_like_entries(stores: Journals) -> None:
    key = await put_gathered(stores.objects, 0, slice_of("t", 0, batch(0, 2, 0)))
    head, size = await read_gathered_head(stores.objects, key)
    placed = PlacedSlice(0, size, 0, head.slices[0])
    await stores.name(slice_reference(NAMESPACE, JOURNAL, placed)._replace(object_key=key))
    await stores.go_on(1)
    report = await stores.check(verify=True)
    assert kinds(report) == set()
    assert (journal(report).gathered, journal(report).needless) == (1, 2)
    await stores.flip(key, size + 40)
    assert kinds(await stores.check(verify=True)) == {FindingKind.SLICE_DAMAGED}
    await stores.flip(key, 20)
    assert kinds(await stores.check()) == {FindingKind.ENTRY_DAMAGED}
    await stores.objects.delete([key])
    assert kinds(await stores.check()) == {FindingKind.SEGMENT_MISSING}


async def test_foreign_objects_among_journals_are_counted(stores: Journals) -> None:
    await stores.objects.put(f"{journals_prefix(NAMESPACE)}note.txt", [b""])
    await stores.objects.put(gathered_key(NAMESPACE, JOURNAL, 3) + "x", [b""])
    assert (await stores.check()).foreign_objects == 2
