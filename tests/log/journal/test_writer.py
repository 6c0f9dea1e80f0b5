"""Entries are acknowledged in their order, and a journal that was ended acknowledges no more."""

import asyncio
import random

import pytest

from kafscale.errors import (
    CorruptDataError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.formats.journal_entry import EntryHead, Fence, decode_cell, encode_fence, head_bytes
from kafscale.formats.journal_keys import entry_key
from kafscale.log.journal.writer import JournalBrokenError, JournalEndedError, JournalWriter
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.store_retries import StoreRetries
from tests.log.journal.slices import image
from tests.support.controlled_store import ControlledStore
from tests.support.watched_loop import in_virtual_time


class Journal:
    """A writer on a store in memory."""

    def __init__(self, in_flight: int = 2) -> None:
        self.store = ControlledStore()
        self.ends = 0
        retries = StoreRetries(random.Random(1))
        self.writer = JournalWriter(
            self.store,
            ConditionalPut(self.store, retries, None),
            retries,
            "default",
            "1-a",
            1,
            in_flight=in_flight,
            now_ms=lambda: 5,
            ended=self.ended,
        )

    def ended(self) -> None:
        self.ends += 1

    def write(self, value: bytes, base_offset: int = 0) -> "asyncio.Task[int]":
        return asyncio.create_task(self.writer.write([image(value, base_offset)]))

    async def fence(self, sequence: int) -> None:
        fence = Fence(journal_id="1-a", broker_id=2, sequence=sequence, created_ms=0)
        await self.store.inner.put_if_absent(key(sequence), [encode_fence(fence)])


def key(sequence: int) -> str:
    return entry_key("default", "1-a", sequence)


@in_virtual_time
async def test_an_entry_holds_its_slices_in_their_order() -> None:
    journal = Journal()
    assert await journal.writer.write([image(b"two", 0, 2), image(b"one", 5, 1)]) == 0
    assert await journal.writer.write([image(b"again", 6, 1)]) == 1
    stored = await journal.store.inner.get(key(0))
    head = decode_cell(key(0), stored)
    assert isinstance(head, EntryHead)
    assert [one.partition for one in head.slices] == [1, 2]
    start = head_bytes(key(0), stored)
    for one, value in zip(head.slices, (b"one", b"two"), strict=True):
        assert stored[start + one.start : start + one.start + one.size_bytes][32:-16] == value
    later = decode_cell(key(1), await journal.store.inner.get(key(1)))
    assert isinstance(later, EntryHead)
    assert (head.committed_through, later.committed_through) == (-1, 0)
    assert journal.writer.committed_through == 1


@in_virtual_time
async def test_a_later_entry_waits_for_the_one_before_it() -> None:
    journal = Journal()
    with journal.store.hold("put_if_absent", key(0)) as hold:
        first, second = journal.write(b"first"), journal.write(b"second")
        await hold.reached()
        await asyncio.sleep(10)
        assert await journal.store.keys(key(1)), "the second one is there"
        assert not first.done()
        assert not second.done()
        assert journal.writer.committed_through == -1
    assert (await first, await second) == (0, 1)


@in_virtual_time
async def test_no_more_entries_are_on_their_way_than_allowed() -> None:
    journal = Journal(in_flight=2)
    with journal.store.hold("put_if_absent", key(0)):
        writes = [journal.write(b"%d" % number) for number in range(6)]
        await asyncio.sleep(10)
        assert journal.store.most_concurrent_puts == 2
        assert journal.store.count("put_if_absent", key(2)) == 0
    assert await asyncio.gather(*writes) == list(range(6))


@in_virtual_time
async def test_an_answer_that_is_lost_is_found_out() -> None:
    journal = Journal()
    journal.store.fail(
        "put_if_absent",
        key(0),
        StoreUnavailableError("away"),
        StoreIndeterminateError("lost"),
        StoreRefusedError("no"),
    )
    assert await journal.write(b"value") == 0
    assert journal.ends == 0


@in_virtual_time
async def test_a_fence_refuses_its_entry_and_all_above_it() -> None:
    journal = Journal(in_flight=3)
    await journal.fence(1)
    with journal.store.hold("put_if_absent", key(0)) as hold:
        writes = [journal.write(b"%d" % number) for number in range(3)]
        await hold.reached()
        with pytest.raises(JournalEndedError, match="ended before entry 1"):
            await writes[1]
        with pytest.raises(JournalEndedError):
            await writes[2]
        assert not writes[0].done()
    assert await writes[0] == 0, "it lies below the fence"
    with pytest.raises(JournalEndedError):
        await journal.write(b"more")
    assert journal.ends == 1


@in_virtual_time
async def test_an_entry_that_lands_above_a_fence_does_not_count() -> None:
    journal = Journal(in_flight=2)
    await journal.fence(0)
    with journal.store.hold("put_if_absent", key(0)) as hold:
        first, second = journal.write(b"first"), journal.write(b"second")
        await hold.reached()
        await asyncio.sleep(10)
        assert await journal.store.keys(key(1))
        assert not second.done()
    for one in (first, second):
        with pytest.raises(JournalEndedError):
            await one


@in_virtual_time
async def test_a_lower_fence_may_be_found_while_a_higher_one_is_read() -> None:
    journal = Journal(in_flight=2)
    await journal.fence(0)
    await journal.fence(1)
    with journal.store.hold("get_range", key(1)) as hold:
        first, second = journal.write(b"first"), journal.write(b"second")
        await hold.reached()
        with pytest.raises(JournalEndedError, match="entry 0"):
            await first
    with pytest.raises(JournalEndedError, match="entry 1"):
        await second
    assert journal.ends == 1


@in_virtual_time
async def test_nothing_follows_an_entry_that_was_given_up() -> None:
    journal = Journal(in_flight=2)
    with journal.store.hold("put_if_absent", key(0)) as hold:
        first, second = journal.write(b"first"), journal.write(b"second")
        await hold.reached()
        first.cancel()
        with pytest.raises(JournalBrokenError, match="entry 0 was given up"):
            await second
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(JournalBrokenError):
        await journal.write(b"more")
    assert journal.ends == 1
    assert journal.writer.committed_through == -1


@in_virtual_time
async def test_foreign_bytes_under_its_key_end_it() -> None:
    journal = Journal()
    other = Journal()
    await other.write(b"other")
    await journal.store.inner.put_if_absent(key(0), [await other.store.inner.get(key(0))])
    with pytest.raises(CorruptDataError, match="an entry of broker 1 with other bytes"):
        await journal.write(b"mine")
    with pytest.raises(JournalBrokenError):
        await journal.write(b"more")
    assert journal.ends == 1
