"""Published states for readers of the stores: each head is read once, whatever happens to records meanwhile."""

import asyncio

import pytest

from kafscale.errors import CorruptDataError
from kafscale.formats.journal_entry import Fence, encode_fence
from kafscale.formats.journal_keys import entry_key
from kafscale.formats.journal_record import JournalRecord, encode_journal_record
from kafscale.journal.replay import EntryMissingError
from kafscale.log.journal.partition_states import PartitionStates
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import KeyValue, Put, Snapshot
from tests.log.journal.journal_stores import JOURNAL, NAMESPACE, Stores, three_entries
from tests.support.controlled_store import ControlledStore


def states_of(stores: Stores, *, forgets: bool = False) -> PartitionStates:
    return PartitionStates(stores.metadata, stores.objects, NAMESPACE, forgets=forgets)


async def ends(states: PartitionStates, *partitions: int) -> dict[int, int]:
    found = await states.read_all("events", partitions)
    return {partition: state.log_end_offset for partition, (state, _) in found.items()}


def test_each_head_is_read_once_for_all_partitions() -> None:
    async def scenario() -> None:
        stores = await three_entries(20)
        states = states_of(stores)
        assert await ends(states, *range(20)) == dict.fromkeys(range(20), 3)
        assert stores.heads_read() == 3
        await stores.flush({7: 3})
        assert await ends(states, 6, 7) == {6: 3, 7: 4}
        assert stores.heads_read() == 4

    asyncio.run(scenario())


def test_readers_at_the_same_time_share_what_they_read() -> None:
    async def scenario() -> None:
        stores = await three_entries(3)
        states = states_of(stores)
        found = await asyncio.gather(*(ends(states, partition) for partition in range(3)))
        assert found == [{0: 3}, {1: 3}, {2: 3}]
        assert stores.heads_read() == 3

    asyncio.run(scenario())


def test_partition_farther_behind_reads_what_came_before() -> None:
    async def scenario() -> None:
        stores = await three_entries(2)
        await stores.record(0, 1, 2)
        states = states_of(stores)
        assert await ends(states, 0) == {0: 3}
        assert stores.heads_read() == 1
        assert await ends(states, 1) == {1: 3}
        assert stores.heads_read() == 3

    asyncio.run(scenario())


def test_what_is_not_reported_is_not_published() -> None:
    async def scenario() -> None:
        stores = await three_entries(1)
        await stores.flush({0: 3}, is_reported=False)
        assert await ends(states_of(stores), 0) == {0: 3}

    asyncio.run(scenario())


def test_what_is_acknowledged_is_found_before_it_is_reported() -> None:
    async def scenario() -> None:
        stores = await three_entries(1)
        for offset in range(3, 40):
            await stores.flush({0: offset}, is_reported=False)
        stores.sequence += 1
        await stores.flush({0: 99}, is_reported=False)
        states = states_of(stores)
        found = await states.read_all("events", [0], beyond_progress=True)
        assert found[0][0].log_end_offset == 40
        # And it stays found.
        assert await ends(states, 0) == {0: 40}

    asyncio.run(scenario())


def test_nothing_above_a_gap_is_published_whatever_the_position() -> None:
    """A partition may be claimed while entries of others are in flight."""

    async def scenario() -> None:
        stores = await three_entries(1)
        await stores.record(0, 4, 3)
        stores.sequence = 4
        await stores.flush({0: 3}, is_reported=False)
        found = await states_of(stores).read_all("events", [0], beyond_progress=True)
        assert found[0][0].log_end_offset == 3
        for sequence in (3, 4):
            stores.sequence = sequence - 1
            await stores.flush({1: sequence - 3}, is_reported=False)
        found = await states_of(stores).read_all("events", [0], beyond_progress=True)
        assert found[0][0].log_end_offset == 4

    asyncio.run(scenario())


def test_nothing_behind_a_fence_is_published() -> None:
    async def scenario() -> None:
        stores = await three_entries(1)
        fence = Fence(journal_id=JOURNAL, broker_id=2, sequence=3, created_ms=0)
        await stores.objects.put_if_absent(entry_key(NAMESPACE, JOURNAL, 3), [encode_fence(fence)])
        stores.sequence = 3
        await stores.flush({0: 3}, is_reported=False)
        found = await states_of(stores).read_all("events", [0], beyond_progress=True)
        assert found[0][0].log_end_offset == 3

    asyncio.run(scenario())


def test_what_records_have_is_forgotten() -> None:
    async def scenario() -> None:
        stores = await three_entries(2)
        states = states_of(stores, forgets=True)
        assert await ends(states, 0, 1) == {0: 3, 1: 3}
        await stores.record(0, 2, 3)
        await stores.flush({0: 3, 1: 3})
        assert await ends(states, 0, 1) == {0: 4, 1: 4}
        assert await ends(states, 0, 1) == {0: 4, 1: 4}
        assert stores.heads_read() == 4

    asyncio.run(scenario())


def test_a_record_that_moved_while_its_entries_were_collected() -> None:
    class Consolidates(ControlledStore):
        """Before the first head is read, everything is consolidated and the first two entries are collected."""

        async def get_range(self, key: str, start: int, length: int) -> bytes:
            if not self.count("get_range"):
                self.calls["get_range", key] += 1
                await stores.record(0, 2, 3)
                await stores.collect(0, 1)
            return await super().get_range(key, start, length)

    stores = Stores()

    async def scenario() -> None:
        stores.objects = Consolidates()
        await stores.record(0, -1, 0)
        for offset in range(3):
            await stores.flush({0: offset})
        assert await ends(states_of(stores), 0) == {0: 3}

    asyncio.run(scenario())


def test_collected_entries_that_had_nothing_for_the_partition() -> None:
    async def scenario() -> None:
        stores = Stores()
        await stores.record(0, -1, 0)
        await stores.record(1, -1, 0)
        for offset in range(3):
            await stores.flush({0: offset})
        await stores.flush({1: 0})
        await stores.record(0, 2, 3)
        await stores.collect(0, 1, 2)
        assert await ends(states_of(stores), 0, 1) == {0: 3, 1: 1}

    asyncio.run(scenario())


def test_a_journal_far_ahead_is_listed_not_probed() -> None:
    async def scenario() -> None:
        stores = await three_entries(1)
        await stores.record(0, 2, 3)
        await stores.collect(0, 1, 2)
        stores.sequence = 9_999
        await stores.flush({0: 3})
        assert await ends(states_of(stores), 0) == {0: 4}
        assert stores.heads_read() == 1

    asyncio.run(scenario())


def test_an_entry_that_must_be_there_and_is_not_is_an_error() -> None:
    async def scenario() -> None:
        stores = await three_entries(1)
        record = JournalRecord(broker_id=1, progress=0, ended_at=3)
        await stores.metadata.transact([], [Put(keys.journal(JOURNAL), encode_journal_record(record))])
        await stores.collect(1)
        with pytest.raises(EntryMissingError, match="entry 1 of journal 1-a is gone"):
            await ends(states_of(stores), 0)

    asyncio.run(scenario())


def test_a_gap_behind_an_unchanged_record_is_an_error() -> None:
    async def scenario() -> None:
        stores = await three_entries(1)
        await stores.collect(1)
        with pytest.raises(CorruptDataError, match="begins at offset 2, the log before it ends at 1"):
            await ends(states_of(stores), 0)

    asyncio.run(scenario())


def test_many_records_cost_one_read_of_the_metadata_store() -> None:
    class Counted(MemoryStore):
        reads = 0

        async def get(self, key: str) -> KeyValue | None:
            self.reads += 1
            return await super().get(key)

        async def range(self, prefix: str) -> Snapshot:
            self.reads += 1
            return await super().range(prefix)

    async def scenario() -> None:
        stores = Stores()
        stores.metadata = metadata = Counted()
        for partition in range(50):
            await stores.record(partition, -1, 0)
        await stores.flush(dict.fromkeys(range(50), 0))
        assert len(await ends(states_of(stores), *range(50))) == 50
        # The records, and the journal's own.
        assert metadata.reads == 2

    asyncio.run(scenario())
