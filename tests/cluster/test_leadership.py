"""Claims: a new epoch for every leader, in the record and in the leader's key, whatever the store answers."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from kafscale.cluster.leadership import REMEMBERED_EPOCHS, Leadership, next_epoch
from kafscale.formats.journal_entry import EntryHead
from kafscale.formats.partition_record import (
    EpochStart,
    JournalPosition,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.topic_record import decode_leader_record, encode_topic_record
from kafscale.journal.replay import Replay
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import LeaderRecord, TopicRecord
from kafscale.metadata.store import Compare, Delete, MetadataStore, Operation, Put, TransactionResult
from tests.log.journal.slices import TOPIC_ID, image
from tests.support.faults import ERRORS, CountingStore, Fault, Fuse, FusedMetadataStore
from tests.support.owners import JOURNALS_TOPIC_ID, OneJournal, end_leases, lead_elsewhere

BROKER_ID = 3
WANTED = [("orders", index) for index in range(10)]


async def store_record(store: MemoryStore, record: PartitionRecord, index: int = 0) -> None:
    await store.transact([], [Put(keys.partition("orders", index), encode_partition_record(record))])


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(max_operations=8)
    await store_topic(store, "orders")
    for index in range(10):
        await store_record(store, PartitionRecord(leader_epoch=-1), index)
    yield store
    await store.close()


async def store_topic(store: MetadataStore, name: str, topic_id: uuid.UUID = JOURNALS_TOPIC_ID) -> None:
    record = TopicRecord(name=name, topic_id=topic_id, partition_count=1000, configs={})
    await store.transact([], [Put(keys.topic(name), encode_topic_record(record))])


async def record_of(store: MemoryStore, index: int) -> PartitionRecord:
    found = await store.get(keys.partition("orders", index))
    assert found is not None
    return decode_partition_record(found.key, found.value)


async def leader_of(store: MemoryStore, index: int) -> LeaderRecord | None:
    found = await store.get(keys.leader("orders", index))
    return None if found is None else decode_leader_record(found.key, found.value)


async def leadership_of(store: MemoryStore, broker_id: int = BROKER_ID) -> Leadership:
    """That of a broker with a lease of its own."""
    lease = await store.grant_lease(60)
    return Leadership(store, broker_id, lambda: lease, OneJournal(), retry_delay_sec=0)


async def test_claiming_starts_the_next_epoch_of_every_partition(store: MemoryStore) -> None:
    for epoch in range(3):
        await end_leases(store, keys.LEADERS)
        leadership = await leadership_of(store)
        claimed = await leadership.claim(WANTED)
        assert sorted((one.topic, one.index) for one in claimed) == WANTED
        for one in claimed:
            assert one.record == await record_of(store, one.index)
            found = await store.get(keys.partition("orders", one.index))
            assert found is not None
            assert one.revision == found.mod_revision
            assert one.record.leader_epoch == epoch
            assert await leader_of(store, one.index) == LeaderRecord(broker_id=3, leader_epoch=epoch)


async def test_only_what_is_wanted_and_has_a_record_is_claimed(store: MemoryStore) -> None:
    leadership = await leadership_of(store)
    claimed = await leadership.claim([("orders", 2), ("orders", 99), ("nothing", 0)])
    assert [(one.topic, one.index) for one in claimed] == [("orders", 2)]
    assert (await record_of(store, 3)).leader_epoch == -1
    assert len((await store.range(keys.PARTITIONS)).items) == 10


async def test_what_another_broker_leads_stays_with_it(store: MemoryStore) -> None:
    await (await leadership_of(store, 1)).claim(WANTED[:4])
    claimed = await (await leadership_of(store, 2)).claim(WANTED)
    assert sorted((one.topic, one.index) for one in claimed) == WANTED[4:]
    assert await leader_of(store, 3) == LeaderRecord(broker_id=1, leader_epoch=0)
    assert await leader_of(store, 4) == LeaderRecord(broker_id=2, leader_epoch=0)


async def test_a_release_deletes_only_the_leader_keys_of_its_claim(store: MemoryStore) -> None:
    first, second = await leadership_of(store, 1), await leadership_of(store, 2)
    gained = {(one.topic, one.index): one.revision for one in await first.claim(WANTED)}
    await first.release({partition: gained[partition] for partition in WANTED[:5]})
    assert [await leader_of(store, index) is None for index in range(10)] == [True] * 5 + [False] * 5
    await second.claim(WANTED)
    await first.release(gained)
    assert [await leader_of(store, index) is None for index in range(10)] == [False] * 5 + [True] * 5
    assert await leader_of(store, 0) == LeaderRecord(broker_id=2, leader_epoch=1)


async def test_a_stale_leader_key_is_released(store: MemoryStore) -> None:
    first, second = await leadership_of(store, 1), await leadership_of(store, 2)
    await first.claim(WANTED[:9])
    await second.claim(WANTED[9:])
    await first.release_stale([WANTED[0], WANTED[9]])
    assert [await leader_of(store, index) is None for index in (0, 1, 9)] == [True, False, False]


async def test_an_unreadable_record_keeps_no_other_from_release(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    leadership = await leadership_of(store)
    await leadership.claim(WANTED)
    await store.transact([], [Put(keys.partition(*WANTED[0]), b"no record")])
    await leadership.release_records(WANTED[:1])
    await leadership.release_stale(WANTED)
    assert [await leader_of(store, index) for index in range(10)] == [None] * 10
    assert [vars(record)["item"] for record in caplog.records] == [keys.partition(*WANTED[0])]


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", range(1, 8))
async def test_a_fault_at_any_call_leaves_every_partition_led(
    store: MemoryStore, call: int, fault: Fault
) -> None:
    lease = await store.grant_lease(60)
    faulty = FusedMetadataStore(store, Fuse(call, fault))
    leadership = Leadership(faulty, BROKER_ID, lambda: lease, OneJournal(), retry_delay_sec=0)
    claimed = await asyncio.wait_for(leadership.claim(WANTED), 10)
    assert sorted((one.topic, one.index) for one in claimed) == WANTED
    for one in claimed:
        assert one.record == await record_of(store, one.index)


async def test_many_are_claimed_without_a_read_for_each(store: MemoryStore) -> None:
    wanted = [("many", index) for index in range(600)]
    record = encode_partition_record(PartitionRecord(leader_epoch=4))
    await store_topic(store, "many")
    for topic, index in wanted:
        await store.transact([], [Put(keys.partition(topic, index), record)])
    await (await leadership_of(store, 1)).claim(wanted[:3])
    counting = CountingStore(store)
    lease = await store.grant_lease(60)
    claimed = await Leadership(counting, 2, lambda: lease, OneJournal()).claim(wanted)
    assert sorted((one.topic, one.index) for one in claimed) == wanted[3:]
    assert {one.record.leader_epoch for one in claimed} == {5}
    assert counting.calls["range"] == 1
    # Three partitions each beside their topic, one to read it, and one more for those that were led.
    assert 200 <= counting.calls["transact"] <= 203


async def test_no_partition_is_claimed_for_a_topic_made_again(store: MemoryStore) -> None:
    """The claimer may not know yet: its slices would name a deleted topic (simulation, seed 120063958)."""
    await store_topic(store, "orders", uuid.UUID(int=2))
    leadership = await leadership_of(store)
    assert await leadership.claim(WANTED) == []
    assert [await leader_of(store, index) for index in range(10)] == [None] * 10
    await store.transact([], [Delete(keys.topic("orders"))])
    assert await leadership.claim(WANTED) == []


class TopicMadeAgain(MemoryStore):
    """The topic is deleted, and there again, in the moment before the first claim."""

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if any(isinstance(one, Put) and one.key.startswith(keys.LEADERS) for one in operations):
            again = TopicRecord(name="orders", topic_id=uuid.UUID(int=2), partition_count=1, configs={})
            await super().transact([], [Put(keys.topic("orders"), encode_topic_record(again))])
        return await super().transact(compares, operations)


async def test_a_topic_made_again_before_the_claim_prevents_it() -> None:
    store = TopicMadeAgain(max_operations=8)
    await store_topic(store, "orders")
    await store_record(store, PartitionRecord(leader_epoch=-1))
    assert await (await leadership_of(store)).claim(WANTED[:1]) == []
    assert await leader_of(store, 0) is None
    assert (await record_of(store, 0)).journal is None
    await store.close()


@pytest.mark.parametrize("is_many", [False, True])
async def test_a_topic_that_changes_meanwhile_is_claimed_all_the_same(
    store: MemoryStore, is_many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration, that is: it keeps its id."""
    monkeypatch.setattr("kafscale.cluster.leadership._MANY", 1 if is_many else 100)
    leadership = await leadership_of(store)
    changed = False

    class Changing(OneJournal):
        async def replays(self, positions: Iterable[JournalPosition]) -> Mapping[str, Replay]:
            nonlocal changed
            changed = True
            await store_topic(store, "orders")
            return await super().replays(positions)

    leadership._journals = Changing()
    claimed = await leadership.claim(WANTED)
    assert changed
    assert sorted((one.topic, one.index) for one in claimed) == WANTED


async def test_the_end_of_a_lease_ends_leadership_but_keeps_the_epoch(store: MemoryStore) -> None:
    await (await leadership_of(store)).claim(WANTED)
    await end_leases(store, keys.LEADERS)
    assert await leader_of(store, 0) is None
    assert (await record_of(store, 0)).leader_epoch == 0


BEHIND = PartitionRecord(
    leader_epoch=0, journal=JournalPosition(journal_id="dead", sequence=-1, topic_id=TOPIC_ID)
)
"""Its leader died before the record named any of the journal's entries."""


class CollectedJournal(OneJournal):
    """A dead broker's journal: of its entries the first was collected. `meanwhile` runs while it is read."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    async def replays(self, positions: Iterable[JournalPosition]) -> Mapping[str, Replay]:
        await self._meanwhile()
        head = EntryHead(
            journal_id="dead",
            broker_id=1,
            sequence=1,
            committed_through=0,
            created_ms=0,
            slices=(image(b"value", 1).row,),
        )
        return {"dead": Replay("dead", {1: (head, 100)}, first=0, end=2, progress=1)}


def reported_problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The `problem` of each error in the log."""
    return [vars(record)["problem"] for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_gap_behind_a_stale_record_is_not_reported(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, is_replaced: bool
) -> None:
    """Once another broker has the partition, no record needs the first entry, and it is collected."""
    await store_record(store, BEHIND)
    lease = await store.grant_lease(60)

    async def claimed_elsewhere() -> None:
        if is_replaced:
            await lead_elsewhere(store, "orders")

    leadership = Leadership(store, BROKER_ID, lambda: lease, CollectedJournal(claimed_elsewhere))
    assert await leadership.claim(WANTED[:1]) == []
    assert len(reported_problems(caplog)) == (0 if is_replaced else 1), reported_problems(caplog)


class OwnCollectedJournal(CollectedJournal):
    """The same, and it is the broker's own."""

    def position(self, topic: str) -> JournalPosition | None:
        return JournalPosition(journal_id="dead", sequence=1, topic_id=TOPIC_ID)


@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_gap_behind_a_released_record_is_reported_if_it_stays(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, is_replaced: bool
) -> None:
    await store_record(store, BEHIND)
    lease = await store.grant_lease(60)

    async def claimed_elsewhere() -> None:
        if is_replaced:
            await lead_elsewhere(store, "orders")
            await store_record(store, replace(BEHIND, leader_epoch=1, journal=None))

    journal = OwnCollectedJournal(claimed_elsewhere)
    await Leadership(store, BROKER_ID, lambda: lease, journal, 0).release_records(WANTED[:1])
    assert len(reported_problems(caplog)) == (0 if is_replaced else 1), reported_problems(caplog)


def test_an_epoch_without_records_leaves_no_entry() -> None:
    record = PartitionRecord(leader_epoch=1, log_end_offset=50, epochs=(EpochStart(0, 0), EpochStart(1, 50)))
    assert next_epoch(record).epochs == (EpochStart(0, 0), EpochStart(2, 50))


def test_the_history_is_bounded() -> None:
    record = PartitionRecord(leader_epoch=-1)
    for offset in range(300):
        record = next_epoch(record)
        record = PartitionRecord(
            leader_epoch=record.leader_epoch, log_end_offset=offset + 1, epochs=record.epochs
        )
    assert len(record.epochs) == REMEMBERED_EPOCHS
    assert record.epochs[-1] == EpochStart(299, 299)
