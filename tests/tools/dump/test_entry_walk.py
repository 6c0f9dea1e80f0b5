"""A dump's findings in entries, fences and gathered objects, sound and damaged."""

from dataclasses import replace
from struct import pack_into

import pytest

from kafscale.formats.journal_entry import CellKind, EntryHead, decode_cell, head_bytes
from kafscale.formats.partition_transactions import BatchKind
from kafscale.tools.dump.entry_walk import EntryWalk
from kafscale.tools.dump.findings import (
    Finding,
    FoundBatch,
    FoundFence,
    FoundJournalObject,
    FoundRecord,
    FoundSlice,
    Look,
)
from kafscale.tools.dump.piece_reader import PieceReader
from tests.tools.dump.sources import EVERYTHING, VERIFY, MemorySource, notes, problems
from tests.tools.journal_objects import Slice, entry_of, fence_of, slice_of
from tests.tools.recovery.recovery_bucket import batch, marker

PLAIN = Look()
ORDERS = slice_of("orders", 0, batch(10, 3, 2, producer=(7, 1, 5)), batch(13, 2, 2))
MORE = slice_of("orders", 1, batch(0, 4, 1))
USERS = slice_of("users", 0, batch(5, 1, 1))
ENTRY = entry_of(5, [USERS, MORE, ORDERS])


def walk(data: bytes, look: Look = VERIFY, name: str = "") -> list[Finding]:
    return list(EntryWalk(PieceReader(MemorySource(data), 64, 1024), look, name=name).findings())


def rows(findings: list[Finding]) -> list[str]:
    return [f"{one.row.topic}-{one.row.partition}" for one in findings if isinstance(one, FoundSlice)]


def offsets(findings: list[Finding]) -> list[int]:
    return [one.header.base_offset for one in findings if isinstance(one, FoundBatch)]


def test_entry_shows_its_head_and_a_row_for_each_slice() -> None:
    findings = walk(ENTRY, PLAIN)
    head = findings[0]
    assert isinstance(head, FoundJournalObject) and not head.is_gathered
    assert (head.head.sequence, head.head.committed_through, head.size_bytes) == (5, 4, len(ENTRY))
    assert sorted(rows(findings)) == ["orders-0", "orders-1", "users-0"]
    assert offsets(findings) == [] and problems(findings) == []


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (Look(topic="orders"), {0, 10, 13}),
        (Look(topic="orders", partition=0), {10, 13}),
        (Look(partition=0), {5, 10, 13}),
        (Look(records=True), {0, 5, 10, 13}),
        (Look(verify=True), {0, 5, 10, 13}),
        (Look(topic="orders", from_offset=13), {13}),
    ],
)
def test_batches_of_the_slices_that_are_asked_for(look: Look, expected: set[int]) -> None:
    findings = walk(ENTRY, look)
    assert set(offsets(findings)) == expected
    assert problems(findings) == []


TRANSACTIONS = slice_of(
    "orders",
    0,
    batch(10, 3, 2, producer=(7, 1, 0), is_transactional=True),
    marker(13, 2, (7, 1), commits=True),
    batch(14, 1, 2, producer=(7, 1, 3), is_transactional=True),
    marker(15, 2, (7, 2), commits=False),
)


def test_markers_of_a_slice_are_as_its_row_says() -> None:
    assert [one.kind for one in TRANSACTIONS.row.producers] == [
        BatchKind.TRANSACTIONAL,
        BatchKind.COMMIT,
        BatchKind.TRANSACTIONAL,
        BatchKind.ABORT,
    ]
    findings = walk(entry_of(5, [TRANSACTIONS]))
    assert problems(findings) == [] and offsets(findings) == [10, 13, 14, 15]
    producers = list(TRANSACTIONS.row.producers)
    producers[1] = replace(producers[1], kind=BatchKind.ABORT)
    lies = Slice(TRANSACTIONS.row._replace(producers=tuple(producers)), TRANSACTIONS.data)
    assert problems(walk(entry_of(5, [lies]))) == [
        "slice of orders-0: it has 4 batches of idempotent producers, its row says 4 or others"
    ]


def test_positions_of_batches_are_those_in_the_slice() -> None:
    findings = walk(ENTRY, Look(topic="orders", partition=0))
    first = next(one for one in findings if isinstance(one, FoundBatch))
    [place] = [one.position for one in findings if isinstance(one, FoundSlice)]
    assert first.position == 32 and place is not None
    assert ENTRY[place : place + len(ORDERS.data)] == ORDERS.data


def test_records_are_shown_with_their_batches() -> None:
    findings = walk(ENTRY, EVERYTHING)
    assert sum(isinstance(one, FoundRecord) for one in findings) == 10


def test_so_many_batches_of_all_slices_and_no_more() -> None:
    assert len(offsets(walk(ENTRY, Look(records=True, max_batches=3)))) == 3


def test_nothing_that_was_asked_for_is_noted() -> None:
    assert notes(walk(ENTRY, Look(topic="payments"))) == ["it has no slice that was asked for"]


def test_fence_and_gathered_object() -> None:
    [found] = walk(fence_of(9))
    assert isinstance(found, FoundFence) and found.fence.sequence == 9
    assert problems(walk(fence_of(9) + b"x")) == ["a fence has 55 bytes, this 56"]
    gathered = walk(entry_of(3, [USERS], kind=CellKind.GATHERED))
    assert isinstance(gathered[0], FoundJournalObject) and gathered[0].is_gathered
    assert problems(gathered) == []


def test_slice_of_an_object_of_its_own_is_noted() -> None:
    elsewhere = Slice(USERS.row._replace(object_key="a/users/0/segment.kfs"), b"")
    findings = walk(entry_of(0, [elsewhere]))
    assert notes(findings) == ["the slice of users-0 is in a/users/0/segment.kfs: dump that"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("s3://b/_kafscale/ns/journals/1-abc/00000000000000000005.entry", []),
        ("00000000000000000005.entry", []),
        ("00000000000000000006.entry", ["its number is 5, its name says 6"]),
        ("journals/1-x/00000000000000000005.entry", ["it is of journal 1-abc, its name says 1-x"]),
    ],
)
def test_name_that_says_something_else_is_a_problem(name: str, says: list[str]) -> None:
    assert problems(walk(ENTRY, PLAIN, name)) == says


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes are shorter than an entry's first 50"),
        (b"KJNL", "4 bytes are shorter than an entry's first 50"),
        (b"NOPE" + ENTRY[4:], "an entry starts with b'KJNL', this with b'NOPE'"),
        (ENTRY[:5] + b"\x02" + ENTRY[6:], "version 2"),
        (ENTRY[:60], "60 bytes of a head of"),
        (ENTRY[:70] + b"!" + ENTRY[71:], "the CRC of the head does not match its bytes"),
        (ENTRY[:12] + b"\xff" * 4 + ENTRY[16:], "a head of 4294967345 bytes"),
    ],
)
def test_damaged_head_is_one_problem(data: bytes, says: str) -> None:
    [problem] = problems(walk(data))
    assert says in problem


def test_cut_entry_is_shown_as_far_as_it_goes() -> None:
    cut = ENTRY[:-40]
    head = decode_cell("entry", ENTRY)
    assert isinstance(head, EntryHead)
    last = head.slices[-1]
    said = problems(walk(cut))
    assert said[0] == f"it has {len(cut)} bytes, its head and its slices {len(ENTRY)}"
    assert said[1:] and all(text.startswith(f"slice of {last.topic}-{last.partition}: ") for text in said[1:])
    nothing = ENTRY[: head_bytes("entry", ENTRY)]
    assert len(problems(walk(nothing, EVERYTHING))) == 1


def test_damaged_slice_does_not_hide_the_others() -> None:
    position = next(
        one.position for one in walk(ENTRY, PLAIN) if isinstance(one, FoundSlice) and one.row.topic == "users"
    )
    assert position is not None
    data = bytearray(ENTRY)
    data[position + 60] ^= 1
    findings = walk(bytes(data), EVERYTHING)
    assert len(rows(findings)) == 3
    assert problems(findings) and all(text.startswith("slice of users-0: ") for text in problems(findings))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"record_count": 9}, "the number of records is 5, its row says 9"),
        ({"last_offset": 15}, "the last offset is 14, its row says 15"),
        ({"max_timestamp_ms": 1}, "the largest timestamp is"),
        ({"leader_epoch": 7}, "the leader epoch is 2, its row says 7"),
        ({"body_crc": 7}, "the body's CRC-32C is"),
        ({"producers": USERS.row.producers + ORDERS.row.producers * 2}, "1 batches of idempotent producers"),
    ],
)
def test_row_that_is_not_its_slice_is_a_problem(change: dict[str, object], says: str) -> None:
    wrong = Slice(ORDERS.row._replace(**change), ORDERS.data)  # type: ignore[arg-type]
    [problem] = problems(walk(entry_of(5, [wrong])))
    assert problem.startswith("slice of orders-0: ") and says in problem
    assert problems(walk(entry_of(5, [wrong]), PLAIN)) == []


def test_head_with_absurd_counts_is_a_problem() -> None:
    data = bytearray(ENTRY)
    pack_into(">I", data, 16, 2**31)
    [problem] = problems(walk(bytes(data)))
    assert "CRC" in problem
