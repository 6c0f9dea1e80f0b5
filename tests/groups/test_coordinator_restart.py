"""The next coordinator of a group goes on from what the store has."""

import asyncio
import random

from kafscale.formats.group_record import MAX_GROUP_RECORD_BYTES
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    SESSION_TIMEOUT_MS,
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


async def _restarted(brokers: Brokers, *members: Member) -> Coordinating:
    broker = await brokers.start()
    for member in members:
        member.broker = broker
    return broker


@scenario()
async def test_a_stable_group_goes_on_at_the_next_coordinator(brokers: Brokers) -> None:
    broker = await brokers.start()
    static = Member(broker, GROUP, instance_id="static")
    members = [Member(broker, GROUP), static, Member(broker, GROUP)]
    await stable(*members)
    assert await members[0].commit(5) is ErrorCode.NONE
    parts = [(await member.sync()).assignment for member in members]
    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 - 1)

    broker = await _restarted(brokers, *members)
    brokers.store.written.clear()
    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 - 1)
    assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 3
    assert [(await member.sync()).assignment for member in members] == parts
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 5}
    assert broker.group(GROUP).leader == members[0].joined.leader
    assert brokers.store.written == []
    assert await members[0].commit(6) is ErrorCode.NONE
    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 + 1)
    assert broker.is_in(GROUP, GroupState.EMPTY)


@scenario()
async def test_empty_groups_survive_a_coordinator_change(brokers: Brokers) -> None:
    broker = await brokers.start()
    await empty(broker, GROUP)
    names = ["", "a/b", "a%2Fb", "ü", NEIGHBOUR]
    for name in names:
        assert await broker.commit(name, 5) is ErrorCode.NONE
    broker = await _restarted(brokers)
    assert {group.group_id for group in broker.coordinator.groups()} == {GROUP, *names}
    assert broker.group(GROUP).generation == 2
    assert broker.group(GROUP).protocol_type == "consumer"
    assert broker.group(NEIGHBOUR).protocol_type is None
    for name in names:
        assert await broker.fetch(name) == {(TOPIC, 0): 5}
    assert await broker.commit(NEIGHBOUR, 6) is ErrorCode.NONE


@scenario()
async def test_a_rebalance_that_a_restart_interrupts_begins_again(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP), Member(broker, GROUP)]
    await stable(members[0])
    await asyncio.gather(joined(members[1]), joined(members[0]))
    assert broker.is_in(GROUP, GroupState.COMPLETING_REBALANCE)
    await _restarted(brokers, *members)
    assert members[0].heartbeat() is ErrorCode.ILLEGAL_GENERATION
    assert members[1].heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    members[1].member_id = ""
    await stable(members[1], members[0])


@scenario()
async def test_commits_do_not_persist_an_unassigned_generation(
    brokers: Brokers,
) -> None:
    """Its record would be loaded as a stable group in which nobody has a partition."""
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await joined(member)
    await member.sync(random.Random(1).randbytes(MAX_GROUP_RECORD_BYTES + 1))
    assert broker.is_in(GROUP, GroupState.PREPARING_REBALANCE)
    assert await member.commit(5) is ErrorCode.NONE
    broker = await _restarted(brokers, member)
    assert broker.is_in(GROUP, GroupState.EMPTY)
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 5}
    member.member_id = ""
    await stable(member)


@scenario()
async def test_unreadable_group_is_logged_and_others_are_served(brokers: Brokers) -> None:
    broker = await brokers.start()
    for group_id in (GROUP, NEIGHBOUR):
        await broker.commit(group_id, 5)
    key, broken = keys.group(GROUP), b"\0\1\0broken"
    await MemoryStore.transact(brokers.store, [], [Put(key, broken)])
    broker = await brokers.start()
    member = Member(broker, GROUP)
    for request in (
        member.join(),
        broker.commit(GROUP, 6),
        broker.fetch(GROUP),
        broker.coordinator.delete(GROUP),
    ):
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE) as problem:
            await request
        assert GROUP in str(problem.value)
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        broker.coordinator.describe(GROUP)
    assert await broker.fetch(NEIGHBOUR) == {(TOPIC, 0): 5}
    assert [group.group_id for group in broker.coordinator.groups()] == [NEIGHBOUR]
    held = await brokers.store.get(key)
    assert held is not None
    assert held.value == broken
    assert (await brokers.store.offsets(GROUP)) == {(TOPIC, 0): 5}
