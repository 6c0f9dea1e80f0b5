"""Share groups whose store is away, whose coordinators follow each other, and that are deleted (KIP-932)."""

import asyncio

from kafscale.formats.share_group_record import decode_share_group
from kafscale.groups.modern.assignment import count
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    Brokers,
    refused,
    scenario,
)
from tests.groups.share.small_topic import (
    SESSION_SEC,
    SMALL,
    SMALL_ID,
    group_of,
    sharing,
    started,
    starts,
    stored_keys,
)

# The store, and other brokers


@scenario()
async def test_no_partition_is_assigned_before_its_start_is_stored(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    with brokers.store.hold("transact", keys.SHARE_STARTS) as hold:
        joining = asyncio.create_task(member.heartbeat())
        await hold.reached.wait()
        await asyncio.sleep(1)
        assert not joining.done()
        assert group_of(broker).target_of(member.member_id) == {}
        hold.release()
        await joining
    assert count(member.has) == 3
    assert len(await starts(brokers)) == 3


@scenario()
async def test_a_member_is_told_to_ask_again_while_the_store_is_away(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    brokers.store.is_away = True
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await member.heartbeat()
    brokers.store.is_away = False
    await asyncio.sleep(1)
    await member.heartbeat()
    assert count(member.has) == 3


@scenario()
async def test_another_coordinator_goes_on(brokers: Brokers) -> None:
    broker = await started(brokers, partitions=4)
    members = [sharing(broker) for _ in range(2)]
    for member in members * 2:
        await member.heartbeat()
    before = [(member.epoch, member.has) for member in members]
    other = await brokers.start()
    for member in members:
        member.coordinator = other.coordinator
        assert (await member.heartbeat()).assignment is None
    assert [(member.epoch, member.has) for member in members] == before
    with refused(ErrorCode.NOT_COORDINATOR):
        await sharing(broker).heartbeat()


@scenario()
async def test_another_coordinator_finds_what_has_changed_meanwhile(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    await member.heartbeat()
    await brokers.make_topic(SMALL, SMALL_ID, 6)
    member.coordinator = (await brokers.start()).coordinator
    for _ in range(3):
        await member.heartbeat()
        await asyncio.sleep(1)
    assert member.has == {SMALL_ID: frozenset(range(6))}
    assert len(await starts(brokers)) == 6


@scenario()
async def test_who_died_with_the_coordinator_is_missed_by_the_next(brokers: Brokers) -> None:
    broker = await started(brokers)
    await sharing(broker).heartbeat()
    other = await brokers.start()
    assert group_of(other).state is GroupState.STABLE
    await asyncio.sleep(SESSION_SEC + 0.1)
    assert group_of(other).state is GroupState.EMPTY


# Deletion


@scenario()
async def test_nothing_of_a_deleted_group_is_left(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    await member.heartbeat()
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NON_EMPTY_GROUP
    await member.leave()
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await stored_keys(brokers) == []
    assert await starts(brokers) == set()
    assert broker.totals == (0, 0, 0)
    member.epoch = 0
    await member.heartbeat()
    assert len(await starts(brokers)) == 3


@scenario()
async def test_a_group_that_could_not_be_deleted_is_there_again(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    await member.heartbeat()
    await member.leave()
    brokers.store.is_away = True
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await broker.coordinator.delete(GROUP)
    brokers.store.is_away = False
    await asyncio.sleep(1)
    member.epoch = 0
    await member.heartbeat()
    assert count(member.has) == 3
    (record, *_) = (await brokers.store.range(keys.group(GROUP))).items
    assert decode_share_group(record.key, record.value).group_epoch == group_of(broker).group_epoch


@scenario(offsets_retention_minutes=1)
async def test_an_empty_share_group_does_not_expire(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    await member.heartbeat()
    await member.leave()
    await asyncio.sleep(3600)
    await broker.expiry.check()
    assert group_of(broker).state is GroupState.EMPTY
    assert len(await starts(brokers)) == 3
