"""Claims of group shards: a new epoch in the shard's record and the coordinator's key, whatever the store answers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kafscale.cluster.coordination import Coordination
from kafscale.errors import LeaseEndedError, StoreUnavailableError
from kafscale.formats.topic_record import decode_coordinator_record, decode_group_shard_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import CoordinatorRecord, GroupShardRecord
from kafscale.metadata.store import Put
from tests.support.faults import ERRORS, Fault, Fuse, FusedMetadataStore
from tests.support.owners import end_leases

SHARDS = range(10)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(max_operations=8)
    yield store
    await store.close()


async def shard_record(store: MemoryStore, shard: int) -> GroupShardRecord:
    found = await store.get(keys.group_shard(shard))
    assert found is not None
    return decode_group_shard_record(found.key, found.value)


async def coordinator(store: MemoryStore, shard: int) -> CoordinatorRecord | None:
    found = await store.get(keys.coordinator(shard))
    return None if found is None else decode_coordinator_record(found.key, found.value)


async def coordination(store: MemoryStore, broker_id: int = 0) -> Coordination:
    """That of a broker with a lease of its own."""
    lease = await store.grant_lease(60)
    return Coordination(store, broker_id, lambda: lease, retry_delay_sec=0)


async def test_claiming_starts_the_next_epoch_of_every_shard(store: MemoryStore) -> None:
    for epoch in range(3):
        await end_leases(store, keys.COORDINATORS)
        claimed = await (await coordination(store, 7 + epoch)).claim(SHARDS)
        assert [one.shard for one in claimed] == list(SHARDS)
        for one in claimed:
            expected = GroupShardRecord(broker_id=7 + epoch, coordinator_epoch=epoch, sequence=0)
            assert one.record == expected == await shard_record(store, one.shard)
            found = await store.get(keys.group_shard(one.shard))
            assert found is not None
            assert found.mod_revision == one.revision
            assert await coordinator(store, one.shard) == CoordinatorRecord(
                broker_id=7 + epoch, coordinator_epoch=epoch
            )


async def test_only_what_is_wanted_is_claimed(store: MemoryStore) -> None:
    await (await coordination(store)).claim([2, 63])
    snapshot = await store.range(keys.COORDINATORS)
    assert [item.key for item in snapshot.items] == [keys.coordinator(2), keys.coordinator(63)]


async def test_the_coordinator_goes_with_its_lease_but_its_epoch_stays(store: MemoryStore) -> None:
    await (await coordination(store, 0)).claim([0])
    await end_leases(store, keys.COORDINATORS)
    assert await coordinator(store, 0) is None
    (again,) = await (await coordination(store, 1)).claim([0])
    assert again.record.coordinator_epoch == 1


async def test_a_shard_that_is_released_keeps_its_epoch_too(store: MemoryStore) -> None:
    first = await coordination(store, 0)
    claimed = {one.shard: one.revision for one in await first.claim([0, 1])}
    await first.release({0: claimed[0]})
    assert await coordinator(store, 0) is None
    assert await coordinator(store, 1) == CoordinatorRecord(broker_id=0, coordinator_epoch=0)
    (again,) = await (await coordination(store, 1)).claim([0, 1])
    assert (again.shard, again.record.coordinator_epoch) == (0, 1)
    await first.release({0: claimed[0]})
    assert await coordinator(store, 0) == CoordinatorRecord(broker_id=1, coordinator_epoch=1)


async def test_a_stale_coordinator_key_is_released(store: MemoryStore) -> None:
    first, second = await coordination(store, 0), await coordination(store, 1)
    await first.claim([0, 1])
    await second.claim([2])
    await first.release_stale([0, 2])
    assert await coordinator(store, 0) is None
    assert await coordinator(store, 1) == CoordinatorRecord(broker_id=0, coordinator_epoch=0)
    assert await coordinator(store, 2) == CoordinatorRecord(broker_id=1, coordinator_epoch=0)


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", range(1, 7))
async def test_a_fault_at_any_call_leaves_every_shard_coordinated(
    store: MemoryStore, call: int, fault: Fault
) -> None:
    lease = await store.grant_lease(60)
    faulty = FusedMetadataStore(store, Fuse(call, fault))
    claims = Coordination(faulty, 3, lambda: lease, retry_delay_sec=0)
    claimed = await asyncio.wait_for(claims.claim(SHARDS), 10)
    assert [one.shard for one in claimed] == list(SHARDS)
    for one in claimed:
        assert one.record == await shard_record(store, one.shard)
        assert one.record.broker_id == 3


async def test_of_two_claims_at_once_one_succeeds(store: MemoryStore) -> None:
    claims = [await coordination(store, broker_id) for broker_id in range(2)]
    gained = [one for each in await asyncio.gather(*(claim.claim([5]) for claim in claims)) for one in each]
    assert [one.record for one in gained] == [await shard_record(store, 5)]
    assert gained[0].record.coordinator_epoch == 0


async def test_a_broker_whose_lease_has_ended_coordinates_nothing(store: MemoryStore) -> None:
    lease = await store.grant_lease(60)
    await store.revoke_lease(lease)
    with pytest.raises(LeaseEndedError):
        await Coordination(store, 0, lambda: lease).claim([0])
    assert await store.get(keys.group_shard(0)) is None
    assert issubclass(LeaseEndedError, StoreUnavailableError)  # which other claims are tried again after


async def test_a_record_that_cannot_be_read_is_not_overwritten(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.transact([], [Put(keys.group_shard(0), b"?")])
    assert [one.shard for one in await (await coordination(store)).claim([0, 1])] == [1]
    assert "group-shards/0" in str([vars(record) for record in caplog.records if record.levelname == "ERROR"])
    assert await coordinator(store, 0) is None
    found = await store.get(keys.group_shard(0))
    assert found is not None
    assert found.value == b"?"


@pytest.mark.parametrize("group_id", ["", "g", "a/b", "äöü", "%2F", ".", "..", "x" * 3000, "\x00", " "])
def test_keys_of_any_group_id_come_back_and_stay_apart(group_id: str) -> None:
    shard = keys.shard_of(group_id)
    assert 0 <= shard < keys.GROUP_SHARD_COUNT
    assert keys.group_id(keys.group(group_id)) == group_id
    assert keys.group(group_id).startswith(keys.groups(shard))
    offset = keys.group_offset(group_id, "orders", 12)
    assert offset.startswith(keys.group_offsets(group_id))
    assert keys.offset_topic_and_partition(offset) == ("orders", 12)
    assert not offset.startswith(keys.group_offsets(group_id + "x"))
    assert not keys.group_offset(group_id + "/x", "t", 0).startswith(keys.group_offsets(group_id))


def test_shards_are_part_of_the_stored_format() -> None:
    assert [keys.shard_of(group_id) for group_id in ("", "orders", "a/b", "äöü")] == [0, 46, 28, 15]
    assert keys.group("a/b ü") == "groups/11/a%2Fb%20%C3%BC"
