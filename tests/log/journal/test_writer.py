"""Entries are acknowledged in their order, and a journal that was ended acknowledges no more."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from kafscale.errors import (
    CorruptDataError,
    StoreIndeterminateError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.formats.journal_entry import EntryHead, Fence, decode_cell, encode_fence, head_bytes
from kafscale.formats.journal_keys import entry_key
from kafscale.log.journal.writer import (
    MOST_UNRENEWED_MS,
    JournalBrokenError,
    JournalEndedError,
    JournalWriter,
)
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.ops.journal_metrics import JournalMetrics
from tests.log.journal.slices import image, write_entry
from tests.support.controlled_store import ControlledStore
from tests.support.watched_loop import in_virtual_time


class Journal:
    """A writer on a store in memory."""

    def __init__(self) -> None:
        self.store = ControlledStore()
        self.ends: list[bool] = []
        self.unrenewed_ms = 0
        self.metrics = JournalMetrics()
        self.shared: dict[str, list[tuple[str, int]]] = {}
        retries = StoreRetries(random.Random(1))
        self.writer = JournalWriter(
            self.store,
            ConditionalPut(self.store, retries, None),
            retries,
            "default",
            "1-a",
            1,
            now_ms=lambda: 5,
            ended=self.ended,
            unrenewed_ms=lambda: self.unrenewed_ms,
            shared_cost=self.shared_cost,
            metrics=self.metrics,
        )

    def ended(self, is_certain: bool) -> None:
        self.ends.append(is_certain)

    @contextmanager
    def shared_cost(self, key: str, slices: Iterable[tuple[str, int]]) -> Iterator[None]:
        """Notes what shares the price of the requests for an entry, and that it is put meanwhile."""
        self.shared[key] = list(slices)
        before = self.store.count("put_if_absent", key)
        yield
        assert self.store.count("put_if_absent", key) > before

    def write(self, value: bytes, base_offset: int = 0) -> "asyncio.Task[int]":
        return asyncio.create_task(write_entry(self.writer, image(value, base_offset)))

    async def fence(self, sequence: int) -> None:
        fence = Fence(journal_id="1-a", broker_id=2, sequence=sequence, created_ms=0)
        await self.store.inner.put_if_absent(key(sequence), [encode_fence(fence)])


def key(sequence: int) -> str:
    return entry_key("default", "1-a", sequence)


@in_virtual_time
async def test_an_entry_holds_its_slices_in_their_order() -> None:
    journal = Journal()
    assert await write_entry(journal.writer, image(b"two", 0, 2), image(b"one", 5, 1)) == 0
    assert await write_entry(journal.writer, image(b"again", 6, 1)) == 1
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
async def test_entries_that_are_answered_at_once_return_in_order() -> None:
    # The second is there when the answers to the first and the third come in one turn of the event loop.
    journal = Journal()
    returned: list[int] = []

    async def write(number: int) -> None:
        returned.append(await journal.write(b"%d" % number))

    with (
        journal.store.hold("put_if_absent", key(0)) as first,
        journal.store.hold("put_if_absent", key(2)) as third,
    ):
        writes = [asyncio.create_task(write(number)) for number in range(3)]
        await first.reached()
        await third.reached()
        first.release()
        third.release()
        await asyncio.gather(*writes)
    assert returned == [0, 1, 2]


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
    assert journal.ends == []


@in_virtual_time
async def test_nothing_is_acknowledged_an_hour_after_a_renewal() -> None:
    journal = Journal()
    journal.unrenewed_ms = MOST_UNRENEWED_MS
    assert await journal.write(b"in time") == 0
    journal.unrenewed_ms += 1
    with pytest.raises(JournalBrokenError, match="not renewed for more than 60 minutes"):
        await journal.write(b"too late")
    with pytest.raises(JournalBrokenError):
        await journal.write(b"after that")
    await asyncio.sleep(0)
    assert journal.ends == [False]


@in_virtual_time
async def test_a_fence_refuses_its_entry_and_all_above_it() -> None:
    journal = Journal()
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
    assert journal.ends == [True]


@in_virtual_time
async def test_an_entry_that_lands_above_a_fence_does_not_count() -> None:
    journal = Journal()
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
    journal = Journal()
    await journal.fence(0)
    await journal.fence(1)
    with journal.store.hold("get_range", key(1)) as hold:
        first, second = journal.write(b"first"), journal.write(b"second")
        await hold.reached()
        with pytest.raises(JournalEndedError, match="entry 0"):
            await first
    with pytest.raises(JournalEndedError, match="entry 1"):
        await second
    assert journal.ends == [True]


@in_virtual_time
async def test_nothing_follows_an_entry_that_was_given_up() -> None:
    journal = Journal()
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
    assert journal.ends == [False]
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
    assert journal.ends == [False]


@in_virtual_time
async def test_topics_of_an_entry_share_its_price() -> None:
    journal = Journal()
    one, two = image(b"one", 5, 1), image(b"value", 0, 2)
    await write_entry(journal.writer, two, one)
    rows = sorted((one.row, two.row), key=lambda row: (row.topic_id, row.partition))
    assert journal.shared == {key(0): [(row.topic, row.size_bytes) for row in rows]}


@in_virtual_time
async def test_entries_are_counted_with_their_slices_and_times() -> None:
    journal = Journal()
    with journal.store.hold("put_if_absent", key(0)) as hold:
        first = journal.write(b"one")
        await hold.reached()
        second = journal.write(b"two", 1)
        await asyncio.sleep(0.01)
        assert journal.writer.in_flight_count == 2
        assert (sum(journal.metrics.put.counts), sum(journal.metrics.commit.counts)) == (1, 0)
    await asyncio.gather(first, second)
    assert journal.writer.in_flight_count == 0
    assert (sum(journal.metrics.put.counts), sum(journal.metrics.commit.counts)) == (2, 2)
    assert journal.metrics.entry_slices.total == 2


@in_virtual_time
async def test_fence_in_the_own_journal_is_counted() -> None:
    journal = Journal()
    await journal.fence(0)
    with pytest.raises(JournalEndedError):
        await journal.write(b"late")
    assert journal.metrics.fences["found"] == 1
    assert sum(journal.metrics.commit.counts) == 0
