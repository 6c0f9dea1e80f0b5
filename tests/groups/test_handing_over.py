"""Group shards that go from one broker to another: with their groups, and with nothing that a member must notice."""

import asyncio

from kafscale.formats.topic_record import decode_coordinator_record
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    SESSION_TIMEOUT_MS,
    STRANGER,
    TOPIC,
    Brokers,
    Coordinating,
    Member,
    empty,
    joined,
    refused,
    scenario,
    stable,
)
from tests.support.waiting import PATIENCE_SEC

SHARD = keys.shard_of(GROUP)
OTHER_GROUP = next(name for name in map("elsewhere-{}".format, range(1000)) if keys.shard_of(name) != SHARD)


async def coordinators(brokers: Brokers) -> set[int]:
    """The shards that somebody coordinates by the store."""
    snapshot = await MemoryStore.range(brokers.store, keys.COORDINATORS)
    return {int(item.key.removeprefix(keys.COORDINATORS)) for item in snapshot.items}


async def coordinator_epoch(brokers: Brokers, shard: int = SHARD) -> int:
    found = await MemoryStore.get(brokers.store, keys.coordinator(shard))
    assert found is not None
    return decode_coordinator_record(found.key, found.value).coordinator_epoch


async def hand_over(before: Coordinating, after: Coordinating, *members: Member) -> None:
    """The group's shard goes to another broker, where its members look for it."""
    await before.shards.resign([SHARD])
    await after.shards.claim([SHARD])
    for member in members:
        member.broker = after


@scenario()
async def test_handed_over_stable_group_does_not_rebalance(brokers: Brokers) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    static = Member(first, GROUP, instance_id="static")
    members = [Member(first, GROUP), static, Member(first, GROUP)]
    await stable(*members)
    assert await members[0].commit(5) is ErrorCode.NONE
    parts = [(await member.sync()).assignment for member in members]
    generation = members[0].generation
    for turn in range(4):
        await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 - 1)
        assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 3
        await first.shards.resign([SHARD])
        for member in members:
            with refused(ErrorCode.NOT_COORDINATOR):
                member.heartbeat()
        await second.shards.claim([SHARD])
        for member in members:
            member.broker = second
        assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 3
        assert second.is_in(GROUP, GroupState.STABLE)
        assert second.group(GROUP).generation == generation
        assert [(await member.sync()).assignment for member in members] == parts
        assert await second.fetch(GROUP) == {(TOPIC, 0): 5 + turn}
        assert await members[turn % 3].commit(6 + turn) is ErrorCode.NONE
        assert await coordinator_epoch(brokers) == turn + 1
        first, second = second, first


@scenario()
async def test_sessions_begin_again_at_the_other_broker_and_end_there(brokers: Brokers) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    stays, dies = Member(first, GROUP), Member(first, GROUP)
    await stable(stays, dies)
    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 - 1)
    await hand_over(first, second, stays, dies)
    for _ in range(3):
        await asyncio.sleep(SESSION_TIMEOUT_MS / 4000)
        assert stays.heartbeat() is ErrorCode.NONE
    await asyncio.sleep(SESSION_TIMEOUT_MS / 4000 + 0.1)
    assert stays.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await stable(stays)
    assert second.group(GROUP).members.keys() == {stays.member_id}


@scenario()
async def test_only_what_is_handed_over_goes(brokers: Brokers) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    goes, stays = Member(first, GROUP), Member(first, OTHER_GROUP)
    await stable(goes, stays)
    await hand_over(first, second, goes)
    assert (goes.heartbeat(), stays.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)
    with refused(ErrorCode.NOT_COORDINATOR):
        await second.commit(OTHER_GROUP, 1)
    assert [group.group_id for group in first.coordinator.groups()] == [OTHER_GROUP]
    assert [group.group_id for group in second.coordinator.groups()] == [GROUP]
    assert first.totals[:2] == second.totals[:2] == (1, 1)
    assert await coordinators(brokers) == set(range(keys.GROUP_SHARD_COUNT))
    assert first.shards.coordinates(SHARD) is False
    assert second.shards.coordinates(SHARD) is True


@scenario()
async def test_what_another_broker_coordinates_is_not_taken_from_it(brokers: Brokers) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    member = Member(first, GROUP)
    await stable(member)
    await second.shards.claim(range(keys.GROUP_SHARD_COUNT))
    assert not any(second.shards.coordinates(shard) for shard in range(keys.GROUP_SHARD_COUNT))
    with refused(ErrorCode.NOT_COORDINATOR):
        await second.commit(GROUP, 7)
    assert member.heartbeat() is ErrorCode.NONE
    assert await member.commit(7) is ErrorCode.NONE


@scenario()
async def test_offsets_are_returned_by_every_broker(brokers: Brokers) -> None:
    """librdkafka never asks for them again after NOT_COORDINATOR."""
    first = await brokers.start()
    second = await brokers.beside()
    await second.shards.claim(range(keys.GROUP_SHARD_COUNT))
    assert await second.fetch(GROUP) == {}
    assert await first.commit(GROUP, 7) is ErrorCode.NONE
    assert await second.fetch(GROUP, require_stable=True) == await first.fetch(GROUP) != {}


@scenario()
async def test_members_that_wait_are_sent_to_the_other_broker(brokers: Brokers) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    members = [Member(first, GROUP), Member(first, GROUP)]
    joining = [asyncio.create_task(member.join()) for member in members]
    follower = Member(first, NEIGHBOUR)
    leader = Member(first, NEIGHBOUR)
    await joined(leader, follower)
    waits = follower if leader.joined.members else leader
    syncing = asyncio.create_task(waits.sync())
    late = asyncio.create_task(Member(first, GROUP).join())
    await asyncio.sleep(0.01)
    await hand_over(first, second, *members, leader, follower)
    answers = [await one for one in (*joining, late)]
    assert {answer.error_code for answer in answers[2:]} == {ErrorCode.NOT_COORDINATOR}
    assert (await syncing).error_code is ErrorCode.NOT_COORDINATOR
    for member in (*members, leader, follower):
        member.member_id = ""
    await asyncio.gather(stable(*members), stable(leader, follower))
    assert second.is_in(GROUP, GroupState.STABLE)
    assert second.is_in(NEIGHBOUR, GroupState.STABLE)


@scenario()
async def test_commit_in_flight_is_durable_before_hand_over(
    brokers: Brokers,
) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    member = Member(first, GROUP)
    await stable(member)
    with brokers.store.hold("transact", keys.group_offsets(GROUP)) as hold:
        commits = [asyncio.create_task(member.commit(offset)) for offset in (1, 2, 3)]
        await hold.until_reached()
        resigning = asyncio.create_task(first.shards.resign([SHARD]))
        await asyncio.sleep(1)
        assert SHARD in await coordinators(brokers), "nobody else can coordinate it yet"
        with refused(ErrorCode.NOT_COORDINATOR):
            await member.commit(4)
    await resigning
    assert [await commit for commit in commits] == [ErrorCode.NONE] * 3
    await second.shards.claim([SHARD])
    assert await second.fetch(GROUP) == {(TOPIC, 0): 3}


@scenario(offsets_commit_timeout_ms=1000)
async def test_resigning_is_bounded_while_store_is_unavailable(brokers: Brokers) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    member = Member(first, GROUP)
    await stable(member)
    assert await member.commit(1) is ErrorCode.NONE
    brokers.store.is_away = True
    commit = asyncio.create_task(member.commit(2))
    resigning = asyncio.create_task(first.shards.resign([SHARD]))
    await asyncio.sleep(60)
    assert commit.done()
    assert not resigning.done()
    with refused(ErrorCode.NOT_COORDINATOR):
        member.heartbeat()
    brokers.store.is_away = False
    await asyncio.wait_for(resigning, PATIENCE_SEC)
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await commit
    await second.shards.claim([SHARD])
    member.broker = second
    assert member.heartbeat() is ErrorCode.NONE
    assert await second.fetch(GROUP) == {(TOPIC, 0): 1}
    # What the one before sent last, and was not answered, comes too late.
    await asyncio.sleep(60)
    assert await second.fetch(GROUP) == {(TOPIC, 0): 1}


@scenario()
async def test_every_state_comes_along(brokers: Brokers) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    await empty(first, NEIGHBOUR)
    await first.commit(GROUP, 9)
    rebalancing = Member(first, STRANGER)
    await stable(rebalancing)
    newcomer = Member(first, STRANGER)
    joining = asyncio.create_task(newcomer.join())
    await asyncio.sleep(0.01)
    assert first.is_in(STRANGER, GroupState.PREPARING_REBALANCE)
    await hand_over(first, second, rebalancing, newcomer)
    assert (await joining).error_code is ErrorCode.NOT_COORDINATOR
    assert second.is_in(NEIGHBOUR, GroupState.EMPTY)
    assert await second.fetch(GROUP) == {(TOPIC, 0): 9}
    # As it was stored: the generation that was to come is not there, and is begun again by whoever joins.
    assert second.is_in(STRANGER, GroupState.STABLE)
    assert rebalancing.heartbeat() is ErrorCode.NONE
    newcomer.member_id = ""
    rejoining = asyncio.create_task(newcomer.join())
    await asyncio.sleep(0.01)
    assert rebalancing.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await rebalancing.join()
    assert (await rejoining).error_code is ErrorCode.NONE


@scenario()
async def test_resigning_shards_not_coordinated_changes_nothing(brokers: Brokers) -> None:
    first = await brokers.start()
    second = await brokers.beside()
    await second.shards.resign(range(keys.GROUP_SHARD_COUNT))
    await second.shards.release_stale(range(keys.GROUP_SHARD_COUNT))
    assert await coordinators(brokers) == set(range(keys.GROUP_SHARD_COUNT))
    assert await first.commit(GROUP, 1) is ErrorCode.NONE


@scenario()
async def test_next_write_reports_a_shard_that_was_lost_unnoticed(
    brokers: Brokers,
) -> None:
    first = await brokers.start()
    member = Member(first, GROUP)
    await stable(member)
    second = await brokers.start()  # the first one's lease has ended
    with refused(ErrorCode.NOT_COORDINATOR):
        await member.commit(1)
    assert first.lost == [SHARD]
    assert not first.shards.coordinates(SHARD)
    await first.shards.resign(range(keys.GROUP_SHARD_COUNT))
    assert first.lost == [SHARD], "a broker that resigns is not notified"
    assert await coordinators(brokers) == set(range(keys.GROUP_SHARD_COUNT))
    member.broker = second
    assert member.heartbeat() is ErrorCode.NONE
    # And under its next lease the first one can coordinate again.
    first.lease = await brokers.store.grant_lease(3600)
    await hand_over(second, first, member)
    assert member.heartbeat() is ErrorCode.NONE
    assert await member.commit(2) is ErrorCode.NONE


@scenario()
async def test_shard_lost_to_a_defect_can_be_claimed_again(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await stable(member)
    transact = brokers.store.transact

    async def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    brokers.store.transact = fail  # type: ignore[assignment]
    with refused(ErrorCode.NOT_COORDINATOR):
        await member.commit(1)
    brokers.store.transact = transact  # type: ignore[method-assign]
    assert broker.lost == [SHARD]
    # What the store says is not so; that is put right before it is claimed again.
    await broker.shards.claim([SHARD])
    assert not broker.shards.coordinates(SHARD)
    await broker.shards.release_stale([SHARD])
    await broker.shards.claim([SHARD])
    assert member.heartbeat() is ErrorCode.NONE
    assert await member.commit(2) is ErrorCode.NONE


@scenario()
async def test_shards_loading_at_lease_end_are_not_coordinated(brokers: Brokers) -> None:
    """It would be so for good, with no key that says so: no broker would take it."""
    broker = await brokers.prepare()
    with brokers.store.hold("range", keys.groups(SHARD)) as hold:
        claiming = asyncio.create_task(broker.shards.claim([SHARD]))
        await hold.until_reached()
        await broker.shards.resign(range(keys.GROUP_SHARD_COUNT))
        hold.release()
        await claiming
    assert not broker.shards.coordinates(SHARD)
    with refused(ErrorCode.NOT_COORDINATOR):
        broker.shards.shard(GROUP)
    await brokers.store.revoke_lease(broker.lease)
    broker.lease = await brokers.store.grant_lease(10**9)
    await broker.shards.claim([SHARD])
    assert broker.shards.coordinates(SHARD)
