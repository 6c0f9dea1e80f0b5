"""Consumer groups in what the coordinator does beside the protocol: expiry, deletion, lag, totals (KIP-848)."""

import asyncio
import uuid
from typing import NoReturn

import pytest

from kafscale.formats.any_group_record import decode_any_group
from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.groups.consumer import target_computation
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.events import LEAVES_FOR_A_WHILE
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.consumer.member import ConsumerMember
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    TOPIC,
    TOPIC_ID,
    Brokers,
    Coordinating,
    Member,
    now_ms,
    refused,
    scenario,
    stable,
)

OTHER_TOPIC = "returns"
OTHER_ID = uuid.UUID(int=7)
MINUTE = 60.0


def group_of(broker: Coordinating, group_id: str = GROUP) -> ConsumerGroup:
    """The group, which must be there."""
    group = broker.coordinator.any_group(group_id)
    assert isinstance(group, ConsumerGroup)
    return group


async def stored_keys(brokers: Brokers, group_id: str = GROUP) -> list[str]:
    """All keys of the group: its record, its members, its offsets."""
    prefixes = (keys.group(group_id), keys.group_members(group_id), keys.group_offsets(group_id))
    found = [await brokers.store.range(prefix) for prefix in prefixes]
    return [item.key for snapshot in found for item in snapshot.items]


async def lives(member: ConsumerMember, seconds: float) -> None:
    """Heartbeats for that long."""
    for _ in range(round(seconds / 30)):
        await asyncio.sleep(30)
        await member.heartbeat()


async def until_settled(broker: Coordinating, *members: ConsumerMember) -> None:
    """Heartbeats every second until the group is stable; a rebalance of few members takes a few."""
    for _ in range(20):
        for member in members:
            await member.heartbeat()
        if group_of(broker).state is GroupState.STABLE:
            return
        await asyncio.sleep(1)
    raise AssertionError("the group does not become stable")


# Expiry


@scenario(offsets_retention_minutes=1)
async def test_an_empty_group_goes_once_it_was_empty_for_the_retention(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = ConsumerMember(broker.coordinator)
    await member.heartbeat()
    assert await member.commit(5) is ErrorCode.NONE
    await lives(member, 10 * MINUTE)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}
    await member.leave()
    await asyncio.sleep(MINUTE - 0.001)
    await broker.expiry.check()
    assert group_of(broker).state is GroupState.EMPTY
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}
    await asyncio.sleep(0.001)
    await broker.expiry.check()
    assert broker.coordinator.any_group(GROUP) is None
    assert await stored_keys(brokers) == []
    assert broker.totals == (0, 0, 0)


@scenario(offsets_retention_minutes=1)
async def test_an_empty_group_without_offsets_goes_at_the_next_check(brokers: Brokers) -> None:
    broker = await brokers.start()
    member, neighbour = ConsumerMember(broker.coordinator), ConsumerMember(broker.coordinator, NEIGHBOUR)
    await member.heartbeat()
    await neighbour.heartbeat()
    await member.leave()
    await broker.expiry.check()
    assert await stored_keys(brokers) == []
    assert await stored_keys(brokers, NEIGHBOUR) == [
        keys.group(NEIGHBOUR),
        keys.group_member(NEIGHBOUR, neighbour.member_id),
    ]


@scenario(offsets_retention_minutes=1)
async def test_offsets_of_topics_that_no_member_reads_any_more_expire(brokers: Brokers) -> None:
    await brokers.make_topic(OTHER_TOPIC, OTHER_ID)
    broker = await brokers.start()
    member = ConsumerMember(broker.coordinator, topics=(TOPIC, OTHER_TOPIC))
    await member.heartbeat()
    assert await member.commit(5, (TOPIC, TOPIC_ID), (OTHER_TOPIC, OTHER_ID)) is ErrorCode.NONE
    member.topics = (TOPIC,)
    await member.heartbeat()
    await lives(member, 2 * MINUTE)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}
    assert group_of(broker).state is GroupState.STABLE


@scenario(offsets_retention_minutes=1)
async def test_a_static_member_that_is_away_keeps_the_offsets(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = ConsumerMember(broker.coordinator, instance_id="one")
    await member.heartbeat()
    assert await member.commit(5) is ErrorCode.NONE
    await lives(member, 10 * MINUTE)
    await member.leave(LEAVES_FOR_A_WHILE)
    await asyncio.sleep(30)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}


# Deletion


@scenario()
async def test_nothing_of_a_deleted_group_is_left(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [ConsumerMember(broker.coordinator), ConsumerMember(broker.coordinator, instance_id="one")]
    for member in members:
        await member.heartbeat()
    assert await members[0].commit(5) is ErrorCode.NONE
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NON_EMPTY_GROUP
    # The writes of the last leave and of the deletion follow at once.
    leaving = [asyncio.create_task(member.leave()) for member in members]
    await asyncio.sleep(0)
    assert group_of(broker).members == {}
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    await asyncio.gather(*leaving)
    assert await stored_keys(brokers) == []
    assert broker.totals == (0, 0, 0)


@scenario()
async def test_who_asks_a_group_that_is_being_deleted_is_answered(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = ConsumerMember(broker.coordinator)
    await member.heartbeat()
    await member.leave()
    deleting = asyncio.create_task(broker.coordinator.delete(GROUP))
    await asyncio.sleep(0)
    assert group_of(broker).state is GroupState.DEAD
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await ConsumerMember(broker.coordinator).heartbeat()
    classic = Member(broker, GROUP)
    assert (await classic.join()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await classic.sync()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await classic.leave()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert classic.heartbeat() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await deleting is ErrorCode.NONE
    assert (await classic.join()).error_code is ErrorCode.NONE


@scenario()
async def test_an_empty_group_survives_its_coordinator_with_its_epoch(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = ConsumerMember(broker.coordinator)
    await member.heartbeat()
    await member.leave()
    epoch = group_of(broker).group_epoch
    broker = await brokers.start()
    assert group_of(broker).state is GroupState.EMPTY
    stored = (await brokers.store.range(keys.group(GROUP))).items[0]
    record = decode_any_group(stored.key, stored.value)
    assert isinstance(record, ConsumerGroupRecord)
    assert record.group_epoch == group_of(broker).group_epoch == epoch
    again = ConsumerMember(broker.coordinator)
    await again.heartbeat()
    assert again.epoch > epoch


@scenario()
async def test_deletion_that_fails_leaves_a_group_that_can_be_deleted(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = ConsumerMember(broker.coordinator)
    await member.heartbeat()
    assert await member.commit(5) is ErrorCode.NONE
    await member.leave()
    brokers.store.is_away = True
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await broker.coordinator.delete(GROUP)
    brokers.store.is_away = False
    assert group_of(broker).state is GroupState.EMPTY
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await stored_keys(brokers) == []


# Totals


@scenario()
async def test_groups_are_counted_by_type(brokers: Brokers) -> None:
    broker = await brokers.start()
    by_type = broker.shards.totals.by_type
    consumer, classic = ConsumerMember(broker.coordinator), Member(broker, NEIGHBOUR)
    await consumer.heartbeat()
    await stable(classic)
    assert by_type == {"consumer": 1, "classic": 1}
    await consumer.leave()
    # The first member decides of which type an empty group is.
    replacing = Member(broker, GROUP)
    await stable(replacing)
    assert by_type == {"consumer": 0, "classic": 2}
    assert broker.totals[:2] == (2, 2)


@scenario()
async def test_a_group_that_does_not_become_stable_is_overdue(brokers: Brokers) -> None:
    broker = await brokers.start()
    totals = broker.shards.totals
    first = ConsumerMember(broker.coordinator, rebalance_timeout_ms=5000)
    await first.heartbeat()
    assert totals.overdue(now_ms() + 10**9) == 0
    brokers.store.is_away = True
    began_ms = now_ms()
    second = ConsumerMember(broker.coordinator, rebalance_timeout_ms=4000)
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await second.heartbeat()
    assert group_of(broker).state is GroupState.ASSIGNING
    assert (totals.overdue(began_ms + 10_000), totals.overdue(began_ms + 10_001)) == (0, 1)
    brokers.store.is_away = False
    await until_settled(broker, first, second)
    assert group_of(broker).state is GroupState.STABLE
    assert totals.overdue(now_ms() + 10**9) == 0


@scenario()
async def test_group_goes_on_after_a_defect_of_an_assignment(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> NoReturn:
        raise ZeroDivisionError

    broker = await brokers.start()
    first = ConsumerMember(broker.coordinator)
    with monkeypatch.context() as patch:
        patch.setattr(target_computation, "ASSIGNORS", {"uniform": fails})
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await first.heartbeat()
    assert "could not compute an assignment" in caplog.text
    assert group_of(broker).state is GroupState.ASSIGNING
    await until_settled(broker, first)
    assert first.owned.keys() == {TOPIC_ID}


@scenario()
async def test_a_classic_group_whose_leader_is_slow_is_not_overdue(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP, session_timeout_ms=1_800_000)
    await member.join()
    assert broker.is_in(GROUP, GroupState.COMPLETING_REBALANCE)
    await asyncio.sleep(29)
    assert broker.shards.totals.overdue(now_ms()) == 0


@scenario(group_memory_bytes=1)
async def test_nothing_stays_of_a_join_that_is_refused(brokers: Brokers) -> None:
    """The group that was made for it did: whoever named new groups took the memory that is meant for all."""
    broker = await brokers.start()
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        await ConsumerMember(broker.coordinator).heartbeat()
    assert broker.totals == (0, 0, 0)
