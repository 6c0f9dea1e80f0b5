"""How expired offsets are looked for: which groups are read, how often, and what happens meanwhile."""

import asyncio

import pytest

from kafscale.groups import expiry
from kafscale.groups.offsets import read_offsets
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import MetadataStore, Put
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    STRANGER,
    TOPIC,
    Brokers,
    Member,
    committed,
    empty,
    scenario,
    stable,
)

MINUTE = 60.0


# What is read


@scenario(offsets_retention_minutes=60)
async def test_only_groups_that_are_due_are_read(brokers: Brokers) -> None:
    broker = await brokers.start()
    names = [f"group-{number}" for number in range(20)]
    for name in names:
        await broker.commit(name, 5)
    await broker.expiry.check()
    await asyncio.sleep(30 * MINUTE)
    await broker.commit(names[0], 5, expire_timestamp_ms=committed(0).commit_timestamp_ms + 1)
    await broker.commit(names[1], 6)
    brokers.store.read.clear()
    await broker.expiry.check()
    assert brokers.store.read == []
    await asyncio.sleep(MINUTE)
    await broker.expiry.check()
    assert brokers.store.read.count(keys.group_offsets(names[0])) == 2  # Once more by its removal.
    assert [one for one in brokers.store.read if one.startswith(keys.GROUP_OFFSETS)] == [
        keys.group_offsets(names[0])
    ] * 2
    brokers.store.read.clear()
    await asyncio.sleep(30 * MINUTE)
    await broker.expiry.check()
    assert {one for one in brokers.store.read if one.startswith(keys.GROUP_OFFSETS)} == {
        keys.group_offsets(name) for name in names[1:]
    }
    assert [group.group_id for group in broker.coordinator.groups()] == [names[1]]


@scenario(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
async def test_the_broker_looks_by_itself_again_and_again(brokers: Brokers) -> None:
    broker = await brokers.start()
    broker.expiry.start()
    await broker.commit(GROUP, 5)
    await asyncio.sleep(MINUTE / 2)
    await broker.commit(NEIGHBOUR, 5)
    brokers.store.is_away = True
    await asyncio.sleep(MINUTE / 4)
    brokers.store.is_away = False
    await asyncio.sleep(MINUTE / 4 + 2)
    assert [group.group_id for group in broker.coordinator.groups()] == [NEIGHBOUR]
    await asyncio.sleep(MINUTE / 2 + 2)
    assert await brokers.store.group_keys() == []
    broker.shards.refuse_requests()
    await asyncio.sleep(10)


@scenario()
async def test_a_group_that_cannot_be_read_does_not_keep_the_others(brokers: Brokers) -> None:
    broker = await brokers.start()
    for group_id in (GROUP, NEIGHBOUR, STRANGER):
        await broker.commit(group_id, 5, expire_timestamp_ms=1)
    await MemoryStore.transact(brokers.store, [], [Put(keys.group_offset(NEIGHBOUR, TOPIC, 0), b"?")])
    await broker.expiry.check()
    assert [group.group_id for group in broker.coordinator.groups()] == [NEIGHBOUR]
    assert broker.is_in(NEIGHBOUR, GroupState.EMPTY)


@scenario()
async def test_foreign_key_in_a_group_hides_no_other_offset(brokers: Brokers) -> None:
    broker = await brokers.start()
    for group_id in (GROUP, NEIGHBOUR):
        await broker.commit(group_id, 5, expire_timestamp_ms=1)
    foreign = keys.group_offsets(GROUP) + "foreign"
    await MemoryStore.transact(brokers.store, [], [Put(foreign, b"?")])
    await broker.expiry.check()
    assert [group.group_id for group in broker.coordinator.groups()] == []


@scenario()
async def test_defect_in_one_group_keeps_no_other_from_expiry(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await brokers.start()
    for group_id in (GROUP, NEIGHBOUR, STRANGER):
        await broker.commit(group_id, 5, expire_timestamp_ms=1)

    async def broken_for_neighbour(store: MetadataStore, group_id: str) -> object:
        if group_id == NEIGHBOUR:
            raise ValueError("a defect")
        return await read_offsets(store, group_id)

    monkeypatch.setattr(expiry, "read_offsets", broken_for_neighbour)
    await broker.expiry.check()
    assert [group.group_id for group in broker.coordinator.groups()] == [NEIGHBOUR]
    assert "background work goes on without one of its items" in caplog.text
    monkeypatch.undo()
    await broker.expiry.check()
    assert [group.group_id for group in broker.coordinator.groups()] == []


@scenario(offsets_retention_check_interval_ms=1000)
async def test_defect_in_a_look_does_not_end_the_expiry(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 5, expire_timestamp_ms=1)
    monkeypatch.setattr(broker.shards, "all_groups", lambda: 1 / 0)
    broker.expiry.start()
    await asyncio.sleep(3)
    monkeypatch.undo()
    await asyncio.sleep(2)
    assert [group.group_id for group in broker.coordinator.groups()] == []


# Races


@scenario(offsets_retention_minutes=1)
async def test_a_commit_while_expired_offsets_are_looked_for_survives(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1, partitions=2)
    await asyncio.sleep(MINUTE)
    with brokers.store.hold("transact", keys.TOPICS) as hold:
        check = asyncio.create_task(broker.expiry.check())
        await hold.until_reached()
        assert await broker.commit(GROUP, 2) is ErrorCode.NONE
    await check
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 2}
    assert await brokers.store.record(GROUP) is not None
    assert broker.is_in(GROUP, GroupState.EMPTY)


@scenario(offsets_retention_minutes=1)
async def test_first_commit_during_expiry_keeps_the_group(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    await asyncio.sleep(MINUTE)
    with brokers.store.hold("transact", keys.TOPICS) as hold:
        check = asyncio.create_task(broker.expiry.check())
        await hold.until_reached()
        assert await broker.commit_all(GROUP, {(TOPIC, 1): committed(2)}) is ErrorCode.NONE
    await check
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 1): 2}
    assert await brokers.store.record(GROUP) is not None


@scenario(offsets_retention_minutes=1)
async def test_commit_in_flight_during_expiry_survives(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    await asyncio.sleep(MINUTE)
    with brokers.store.hold("transact", keys.group_offsets(GROUP)) as hold:
        commit = asyncio.create_task(broker.commit(GROUP, 2))
        await hold.until_reached()
        check = asyncio.create_task(broker.expiry.check())
        await asyncio.sleep(1)
        assert not check.done()
    assert await commit is ErrorCode.NONE
    await check
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 2}


@scenario(offsets_retention_minutes=1)
async def test_member_joining_during_expiry_keeps_the_group(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    await empty(broker, GROUP)
    await broker.commit(GROUP, 1)
    await asyncio.sleep(MINUTE)
    member = Member(broker, GROUP)
    with brokers.store.hold("transact", keys.TOPICS) as hold:
        check = asyncio.create_task(broker.expiry.check())
        await hold.until_reached()
        await stable(member)
    await check
    assert member.heartbeat() is ErrorCode.NONE
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 1}


@scenario(offsets_retention_minutes=1)
async def test_expiring_group_refuses_commits_until_removal_fails(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    await asyncio.sleep(MINUTE)
    with brokers.store.hold("transact", keys.GROUPS) as hold:
        check = asyncio.create_task(broker.expiry.check())
        await hold.until_reached()
        assert await broker.commit(GROUP, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        brokers.store.is_away = True
        hold.release()
        await check
    assert broker.is_in(GROUP, GroupState.EMPTY)
    brokers.store.is_away = False
    assert await broker.commit(GROUP, 3) is ErrorCode.NONE
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 3}
    assert await brokers.store.record(GROUP) is not None


@scenario(offsets_retention_minutes=1000)
async def test_offset_with_own_retention_during_check_expires(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1, partitions=2)
    with brokers.store.hold("transact", keys.TOPICS) as hold:
        check = asyncio.create_task(broker.expiry.check())
        await hold.until_reached()
        expire_timestamp_ms = committed(0).commit_timestamp_ms + 1000
        await broker.commit(GROUP, 2, expire_timestamp_ms=expire_timestamp_ms)
    await check
    await asyncio.sleep(2)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 1): 1}


@scenario()
async def test_group_recreated_during_check_is_not_the_old_one(
    brokers: Brokers,
) -> None:
    """The one before was needless when its only expected member did not come; the commit is another's."""
    broker = await brokers.start()
    pending = Member(broker, GROUP, member_id_required=True, session_timeout_ms=1000)
    assert (await pending.join()).error_code is ErrorCode.MEMBER_ID_REQUIRED
    with brokers.store.hold("range", keys.group_offsets(GROUP)) as hold:
        check = asyncio.create_task(broker.expiry.check())
        await hold.until_reached()
        await asyncio.sleep(1)
        assert broker.coordinator.describe(GROUP) is None
        hold.release()
        commit = asyncio.create_task(broker.commit(GROUP, 5))
        await check
    assert await commit is ErrorCode.NONE
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}
    assert broker.is_in(GROUP, GroupState.EMPTY)
    assert await brokers.store.record(GROUP) is not None


@scenario()
async def test_group_recreated_before_its_turn_is_not_the_old_one(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    await broker.commit(NEIGHBOUR, 5)
    pending = Member(broker, GROUP, member_id_required=True, session_timeout_ms=1000)
    assert (await pending.join()).error_code is ErrorCode.MEMBER_ID_REQUIRED
    with (
        brokers.store.hold("range", keys.group_offsets(NEIGHBOUR)) as first,
        brokers.store.hold("range", keys.group_offsets(GROUP)) as second,
    ):
        check = asyncio.create_task(broker.expiry.check())
        await first.until_reached()
        await asyncio.sleep(1)
        assert broker.coordinator.describe(GROUP) is None
        first.release()
        await asyncio.sleep(1)
        second.release()
        commit = asyncio.create_task(broker.commit(GROUP, 5))
        await check
    assert await commit is ErrorCode.NONE
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}
