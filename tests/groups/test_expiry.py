"""Which offsets and groups expire, when they are looked at, and what races with that (KIP-211)."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import pytest

from kafscale.groups.events import Protocol
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    STRANGER,
    TOPIC,
    Brokers,
    Coordinating,
    Member,
    committed,
    empty,
    refused,
    scenario,
    stable,
    subscription,
)

OTHER_TOPIC = "returns"
OTHER_ID = UUID(int=7)
RETENTION_MS = 60_000
MINUTE = 60.0


async def start(brokers: Brokers) -> Coordinating:
    """A broker that knows both topics."""
    await brokers.make_topic(OTHER_TOPIC, OTHER_ID)
    return await brokers.start()


def consumer(broker: Coordinating, *topics: str) -> Member:
    """A member that reads these topics and lives for long."""
    protocols = (Protocol("range", subscription(*topics)),)
    return Member(broker, GROUP, protocols=protocols, session_timeout_ms=1_800_000)


async def commit_both(member: Member, offset: int, *, expire_timestamp_ms: int | None = None) -> None:
    """Commit in the first partition of both topics."""
    offsets = {
        (TOPIC, 0): committed(offset, expire_timestamp_ms=expire_timestamp_ms),
        (OTHER_TOPIC, 0): committed(offset, topic_id=OTHER_ID, expire_timestamp_ms=expire_timestamp_ms),
    }
    assert await member.broker.coordinator.commit(
        GROUP,
        member_id=member.member_id,
        group_instance_id=None,
        generation=member.generation,
        offsets=offsets,
    ) is ErrorCode.NONE  # fmt: skip


async def of_topics(brokers: Brokers) -> Mapping[str, int]:
    """Stored offsets of the group's first partitions, by topic."""
    return {topic: offset for (topic, _), offset in (await brokers.store.offsets(GROUP)).items()}


# What expires when


@scenario(offsets_retention_minutes=1)
async def test_an_empty_group_goes_once_it_was_empty_for_the_retention(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = consumer(broker, TOPIC)
    await stable(member)
    await member.commit(5)
    await asyncio.sleep(10 * MINUTE)
    await member.leave()
    await asyncio.sleep(MINUTE - 0.001)
    await broker.expiry.check()
    assert broker.is_in(GROUP, GroupState.EMPTY)
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}
    await asyncio.sleep(0.001)
    await broker.expiry.check()
    assert broker.coordinator.describe(GROUP) is None
    assert await brokers.store.group_keys() == []
    assert broker.totals == (0, 0, 0)


@scenario(offsets_retention_minutes=1)
async def test_empty_time_continues_at_the_next_coordinator(brokers: Brokers) -> None:
    broker = await brokers.start()
    await empty(broker, GROUP)
    await broker.commit(GROUP, 5, age_ms=10 * RETENTION_MS)
    await asyncio.sleep(MINUTE - 1)
    broker = await brokers.start()
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}
    await asyncio.sleep(1)
    await broker.expiry.check()
    assert await brokers.store.group_keys() == []


@scenario(offsets_retention_minutes=1)
async def test_a_group_without_members_ever_expires_by_its_commits(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1, partitions=2)
    await asyncio.sleep(MINUTE / 2)
    await broker.commit(GROUP, 2)
    await asyncio.sleep(MINUTE / 2)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 2}
    assert broker.is_in(GROUP, GroupState.EMPTY)
    await asyncio.sleep(MINUTE / 2)
    await broker.expiry.check()
    assert await brokers.store.group_keys() == []


@scenario(offsets_retention_minutes=1)
async def test_a_commit_to_an_empty_group_lasts_for_the_retention(brokers: Brokers) -> None:
    broker = await brokers.start()
    await empty(broker, GROUP)
    await asyncio.sleep(MINUTE - 1)
    await broker.commit(GROUP, 5)
    await asyncio.sleep(MINUTE - 1)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 5}


@scenario(offsets_retention_minutes=1)
async def test_stable_group_loses_offsets_of_unsubscribed_topics(brokers: Brokers) -> None:
    broker = await start(brokers)
    member = consumer(broker, TOPIC)
    await stable(member)
    await commit_both(member, 5)
    await asyncio.sleep(MINUTE)
    await broker.expiry.check()
    assert await of_topics(brokers) == {TOPIC: 5}
    assert broker.is_in(GROUP, GroupState.STABLE)


@scenario(offsets_retention_minutes=1)
async def test_a_topic_that_members_stop_reading_is_looked_at_soon(brokers: Brokers) -> None:
    broker = await start(brokers)
    member = consumer(broker, TOPIC, OTHER_TOPIC)
    await stable(member)
    await commit_both(member, 5)
    await asyncio.sleep(MINUTE + 1)
    await broker.expiry.check()
    assert await of_topics(brokers) == {TOPIC: 5, OTHER_TOPIC: 5}
    member.protocols = (Protocol("range", subscription(TOPIC)),)
    await stable(member)
    await broker.expiry.check()
    assert await of_topics(brokers) == {TOPIC: 5}


@pytest.mark.parametrize(
    ("protocol_type", "metadata"), [("consumer", b"\0"), ("connect", subscription(TOPIC))]
)
@scenario(offsets_retention_minutes=1)
async def test_a_stable_group_whose_topics_are_not_known_loses_nothing(
    brokers: Brokers, protocol_type: str, metadata: bytes
) -> None:
    broker = await start(brokers)
    member = consumer(broker)
    member.protocol_type, member.protocols = protocol_type, (Protocol("range", metadata),)
    await stable(member)
    await commit_both(member, 5)
    await asyncio.sleep(10 * MINUTE)
    await broker.expiry.check()
    assert await of_topics(brokers) == {TOPIC: 5, OTHER_TOPIC: 5}


@scenario(offsets_retention_minutes=1)
async def test_nothing_expires_during_a_rebalance(brokers: Brokers) -> None:
    broker = await start(brokers)
    member = consumer(broker, TOPIC)
    await stable(member)
    await commit_both(member, 5)
    await asyncio.sleep(2 * MINUTE)
    joining = asyncio.create_task(consumer(broker, TOPIC).join())
    await asyncio.sleep(0.001)
    assert broker.is_in(GROUP, GroupState.PREPARING_REBALANCE)
    await broker.expiry.check()
    assert await of_topics(brokers) == {TOPIC: 5, OTHER_TOPIC: 5}
    await asyncio.gather(stable(member), joining)


# A retention that the client asked for (OffsetCommit 2 to 4)


@scenario(offsets_retention_minutes=1000)
async def test_an_offset_goes_when_its_client_said(brokers: Brokers) -> None:
    broker = await brokers.start()
    expire_timestamp_ms = committed(0).commit_timestamp_ms + 5000
    await broker.commit(GROUP, 1, partitions=2)
    await broker.expiry.check()
    await broker.commit(GROUP, 2, expire_timestamp_ms=expire_timestamp_ms)
    await asyncio.sleep(4.999)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 2, (TOPIC, 1): 1}
    await asyncio.sleep(0.001)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 1): 1}


@scenario(offsets_retention_minutes=1)
async def test_a_longer_retention_than_the_brokers_counts_too(brokers: Brokers) -> None:
    broker = await brokers.start()
    expire_timestamp_ms = committed(0).commit_timestamp_ms + 10 * RETENTION_MS
    await broker.commit(GROUP, 1, expire_timestamp_ms=expire_timestamp_ms)
    await asyncio.sleep(10 * MINUTE - 1)
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 1}
    await asyncio.sleep(1)
    await broker.expiry.check()
    assert await brokers.store.group_keys() == []


@scenario(offsets_retention_minutes=1000)
async def test_offsets_past_retention_expire_once_members_leave(brokers: Brokers) -> None:
    broker = await start(brokers)
    member = consumer(broker, TOPIC)
    await stable(member)
    await commit_both(member, 5, expire_timestamp_ms=committed(0).commit_timestamp_ms + 1000)
    await asyncio.sleep(10)
    await broker.expiry.check()
    assert await of_topics(brokers) == {TOPIC: 5}
    await member.leave()
    await broker.shards.shard(GROUP).flush()
    await broker.expiry.check()
    assert await brokers.store.group_keys() == []


@scenario(offsets_retention_minutes=1000)
async def test_members_keep_subscribed_offsets_within_own_retention(brokers: Brokers) -> None:
    broker = await start(brokers)
    member = consumer(broker, TOPIC)
    await stable(member)
    await commit_both(member, 5, expire_timestamp_ms=0)
    await broker.expiry.check()
    assert await of_topics(brokers) == {TOPIC: 5}


# Topics that are gone


@scenario()
async def test_a_topic_that_goes_takes_its_offsets_with_it(brokers: Brokers) -> None:
    broker = await start(brokers)
    member = consumer(broker, TOPIC, OTHER_TOPIC)
    await stable(member)
    await commit_both(member, 5)
    await broker.commit(NEIGHBOUR, 5)
    await broker.expiry.check()
    await brokers.delete_topic(TOPIC)
    await broker.tell_topics()
    await broker.expiry.check()
    assert await of_topics(brokers) == {OTHER_TOPIC: 5}
    assert broker.is_in(GROUP, GroupState.STABLE)
    assert broker.coordinator.describe(NEIGHBOUR) is None
    assert set(await brokers.store.group_keys()) == {
        keys.group(GROUP),
        keys.group_offset(GROUP, OTHER_TOPIC, 0),
    }


@scenario()
async def test_recreated_topic_does_not_keep_old_offsets(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 5, partitions=2)
    await brokers.make_topic(TOPIC, UUID(int=2))
    await broker.tell_topics()
    await broker.commit(GROUP, 6, topic_id=UUID(int=2))
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 6}


@scenario()
async def test_stale_view_of_topics_expires_no_offset(brokers: Brokers) -> None:
    broker = await brokers.start()
    await brokers.make_topic("new", UUID(int=3))
    await broker.commit_all(GROUP, {("new", 0): committed(5, topic_id=UUID(int=3))})
    assert broker.view.topic("new") is None
    await broker.expiry.check()
    assert await brokers.store.offsets(GROUP) == {("new", 0): 5}


@pytest.mark.parametrize("obstacle", ["the store is away", "groups are being loaded"])
@scenario()
async def test_deleted_topic_is_remembered_after_a_failed_check(brokers: Brokers, obstacle: str) -> None:
    broker = await start(brokers)
    await broker.commit(GROUP, 5)
    await broker.commit_all(GROUP, {(OTHER_TOPIC, 0): committed(5, topic_id=OTHER_ID)})
    await broker.expiry.check()
    await brokers.delete_topic(TOPIC)
    await broker.tell_topics()
    if obstacle == "the store is away":
        brokers.store.is_away = True
        await broker.expiry.check()
        brokers.store.is_away = False
    else:
        other = keys.shard_of(GROUP) ^ 1
        await broker.shards.resign([other])
        with brokers.store.hold("range", keys.groups(other)) as hold:
            claim = asyncio.create_task(broker.shards.claim([other]))
            await hold.until_reached()
            with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                await broker.expiry.check()
        await claim
    await broker.expiry.check()
    assert await of_topics(brokers) == {OTHER_TOPIC: 5}


# Groups of which nothing is left


@scenario(offsets_retention_minutes=1000)
async def test_empty_group_without_offsets_is_deleted_unless_joined(brokers: Brokers) -> None:
    broker = await brokers.start()
    for group_id in (GROUP, NEIGHBOUR):
        await empty(broker, group_id)
    pending = Member(broker, GROUP, member_id_required=True)
    assert (await pending.join()).error_code is ErrorCode.MEMBER_ID_REQUIRED
    await stable(Member(broker, STRANGER))
    await broker.expiry.check()
    assert {group.group_id for group in broker.coordinator.groups()} == {GROUP, STRANGER}
    assert await brokers.store.record(GROUP) is not None
    assert await brokers.store.record(NEIGHBOUR) is None
    await stable(pending)
    assert pending.generation == 3
