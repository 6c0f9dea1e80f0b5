"""The end of a journal whose owner is dead, far ahead, or still writing. Bad networks: `tests/sim`."""

import asyncio
import random

import pytest

from kafscale.errors import CorruptDataError, StoreUnavailableError
from kafscale.formats.journal_keys import entry_key
from kafscale.formats.journal_record import JournalRecord, decode_journal_record, encode_journal_record
from kafscale.log.journal.end_journal import JournalEnding, JournalUnknownError, StoredJournal
from kafscale.log.journal.heads import FIRST_READ_BYTES, read_head, read_heads
from kafscale.log.journal.writer import JournalEndedError, JournalWriter
from kafscale.log.writing.conditional_put import ConditionalPut
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from tests.log.journal.slices import image, write_entry
from tests.sim.unreliable import Network, UnreliableObjects
from tests.support.controlled_store import ControlledStore
from tests.support.watched_loop import in_virtual_time


class Scene:
    """A journal with its record, and what ends it."""

    def __init__(self, network: Network | None = None) -> None:
        self.store = ControlledStore()
        self.objects = self.store if network is None else UnreliableObjects(self.store, network)
        self.metadata = MemoryStore()
        self.retries = StoreRetries(random.Random(1))
        put = ConditionalPut(self.objects, self.retries, None)
        self.writer = JournalWriter(
            self.objects,
            put,
            self.retries,
            "default",
            "1-a",
            1,
            now_ms=lambda: 0,
            ended=lambda is_certain: None,
        )

    async def tell(self, record: JournalRecord) -> None:
        await self.metadata.transact([], [Put(keys.journal("1-a"), encode_journal_record(record))])

    async def told(self) -> JournalRecord:
        found = await self.metadata.get(keys.journal("1-a"))
        assert found is not None
        return decode_journal_record("record", found.value)

    async def write(self, count: int) -> None:
        for number in range(count):
            await write_entry(self.writer, image(b"value", number))

    async def end(self, broker_id: int = 2) -> int:
        ending = JournalEnding(
            self.objects,
            StoredJournal(self.metadata, "1-a"),
            "default",
            "1-a",
            broker_id,
            self.retries,
            lambda: 0,
        )
        return await ending.end()


@in_virtual_time
async def test_a_journal_ends_behind_its_last_entry() -> None:
    scene = Scene()
    await scene.tell(JournalRecord(broker_id=1, progress=1))
    await scene.write(3)
    assert await scene.end() == 3
    assert await scene.told() == JournalRecord(broker_id=1, progress=1, ended_at=3)
    puts = scene.store.count("put_if_absent")
    assert await scene.end(broker_id=3) == 3
    assert scene.store.count("put_if_absent") == puts, "whoever comes second finds it in the record"
    with pytest.raises(JournalEndedError):
        await scene.write(1)


@in_virtual_time
async def test_an_owner_far_ahead_of_its_progress_costs_few_puts() -> None:
    scene = Scene()
    await scene.tell(JournalRecord(broker_id=1))
    await scene.write(500)
    puts = scene.store.count("put_if_absent")
    assert await scene.end() == 500
    assert scene.store.count("put_if_absent") - puts < 10


@in_virtual_time
async def test_an_owner_that_writes_on_is_overtaken() -> None:
    scene = Scene(Network(random.Random(1), fault_rate=0.0))
    await scene.tell(JournalRecord(broker_id=1))
    writes = [asyncio.create_task(scene.write(10_000)) for _ in range(4)]
    await asyncio.sleep(5)
    before = scene.writer.committed_through
    end = await scene.end()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(one, JournalEndedError) for one in outcomes)
    assert scene.writer.committed_through == end - 1
    assert 50 < before < end < 10 * before


@in_virtual_time
async def test_a_journal_without_a_record_is_named() -> None:
    with pytest.raises(JournalUnknownError, match="1-a"):
        await Scene().end()


@in_virtual_time
async def test_a_long_head_takes_a_second_read() -> None:
    scene = Scene()
    await write_entry(scene.writer, *(image(b"value", 0, partition) for partition in range(1_000)))
    key = entry_key("default", "1-a", 0)
    head, size = await read_head(scene.store, key)
    assert size > FIRST_READ_BYTES
    assert len(getattr(head, "slices", ())) == 1_000
    assert scene.store.count("get_range", key) == 2


@in_virtual_time
async def test_heads_are_of_what_is_there_however_often_one_fails() -> None:
    scene = Scene()
    await scene.write(3)
    await scene.tell(JournalRecord(broker_id=1, progress=2))
    await scene.end()
    scene.store.fail("get_range", "*", *[StoreUnavailableError("away")] * 40)
    found = await read_heads(scene.store, "default", "1-a", range(30), scene.retries)
    assert set(found) == {0, 1, 2}
    damaged = entry_key("default", "1-a", 1)
    scene.store.lie(damaged, lambda data: data[:60] + b"?" + data[61:])
    with pytest.raises(CorruptDataError, match="CRC"):
        await read_heads(scene.store, "default", "1-a", range(3), scene.retries)
