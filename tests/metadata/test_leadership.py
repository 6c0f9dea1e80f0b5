"""Claims: a new epoch for every leader, in the record and in the leader's key, whatever the store answers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kafscale.metadata import keys
from kafscale.metadata.leadership import REMEMBERED_EPOCHS, Leadership, next_epoch
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, LeaderRecord
from kafscale.metadata.partition_record import (
    EpochStart,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.metadata.store import Put
from kafscale.metadata.topic_record import decode_leader_record
from tests.support.faults import ERRORS, Fault, Fuse, FusedMetadataStore

BROKER = BrokerRecord(broker_id=3, host="localhost", port=9092)
WANTED = [("orders", index) for index in range(10)]


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(max_operations=8)
    for index in range(10):
        record = PartitionRecord(leader_epoch=-1)
        await store.transact([], [Put(keys.partition("orders", index), encode_partition_record(record))])
    yield store
    await store.close()


async def record_of(store: MemoryStore, index: int) -> PartitionRecord:
    found = await store.get(keys.partition("orders", index))
    assert found is not None
    return decode_partition_record(found.key, found.value)


async def leader_of(store: MemoryStore, index: int) -> LeaderRecord | None:
    found = await store.get(keys.leader("orders", index))
    return None if found is None else decode_leader_record(found.key, found.value)


async def test_claiming_starts_the_next_epoch_of_every_partition(store: MemoryStore) -> None:
    leadership = Leadership(store, BROKER, lease_ttl_sec=60)
    assert await leadership.register()
    for epoch in range(3):
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
    leadership = Leadership(store, BROKER, lease_ttl_sec=60)
    await leadership.register()
    claimed = await leadership.claim([("orders", 2), ("orders", 99), ("nothing", 0)])
    assert [(one.topic, one.index) for one in claimed] == [("orders", 2)]
    assert (await record_of(store, 3)).leader_epoch == -1


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", range(1, 8))
async def test_a_fault_at_any_call_leaves_every_partition_led(
    store: MemoryStore, call: int, fault: Fault
) -> None:
    steady = Leadership(store, BROKER, lease_ttl_sec=60)
    await steady.register()
    faulty = FusedMetadataStore(store, Fuse(call, fault))
    leadership = Leadership(faulty, BROKER, 60, retry_delay_sec=0)
    leadership._lease = steady._lease
    claimed = await asyncio.wait_for(leadership.claim(WANTED), 10)
    assert sorted((one.topic, one.index) for one in claimed) == WANTED
    for one in claimed:
        assert one.record == await record_of(store, one.index)


async def test_a_second_broker_of_the_same_id_is_not_registered(store: MemoryStore) -> None:
    first, second = (Leadership(store, BROKER, lease_ttl_sec=60) for _ in range(2))
    assert await first.register()
    assert not await second.register()
    await first.close()
    assert await second.register()


async def test_closing_ends_the_leadership_but_not_the_epoch(store: MemoryStore) -> None:
    leadership = Leadership(store, BROKER, lease_ttl_sec=60)
    await leadership.register()
    await leadership.claim(WANTED)
    await leadership.close()
    assert await leader_of(store, 0) is None
    assert (await record_of(store, 0)).leader_epoch == 0


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
