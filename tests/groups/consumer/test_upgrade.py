"""A classic group with members becomes a consumer group: what the members, the store and a next coordinator see."""

import asyncio

import pytest

from kafscale.groups.modern.assignment import union
from kafscale.groups.shard import GroupShard
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.groups import MigrationPolicy
from tests.groups.consumer.mixed_group import (
    EVERY,
    TOPIC,
    TOPIC_ID,
    ClassicClient,
    ConsumerClient,
    OneByOne,
    consumer_group,
    group_type,
    member_keys,
    next_broker,
    one_broker,
    share,
)
from tests.groups.controlled_metadata import Metadata
from tests.groups.coordination import GROUP, Brokers, refused, scenario


@scenario()
async def test_members_keep_their_partitions_and_join_again(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old = ClassicClient(broker)
    await old.lead_alone()
    new = ConsumerClient(broker)
    answer = await new.heartbeat()
    assert (answer.member_epoch, answer.assignment) == (2, {})
    assert group_type(broker) == ("consumer", "Reconciling")
    member = consumer_group(broker).members[old.member_id]
    assert (member.member_epoch, member.assigned) == (1, {TOPIC_ID: EVERY})
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await old.join()
    kept = await old.get()
    await new.heartbeat()
    assert (old.generation, len(kept), new.has) == (2, 2, EVERY - kept)
    assert group_type(broker) == ("consumer", "Stable")


@scenario()
async def test_waiting_requests_are_told_to_join_again(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    first, second = ClassicClient(broker), ClassicClient(broker)
    await first.lead_alone()
    waiting = asyncio.create_task(second.join())
    await asyncio.sleep(0)
    assert group_type(broker) == ("classic", "PreparingRebalance")
    await ConsumerClient(broker).heartbeat()
    joined = await waiting
    assert joined.error_code is ErrorCode.REBALANCE_IN_PROGRESS
    second.member_id = joined.member_id
    assert (await second.join()).error_code is ErrorCode.NONE
    assert len(consumer_group(broker).members) == 3


@scenario()
async def test_next_coordinator_has_the_same_members(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old, new = ClassicClient(broker), ConsumerClient(broker)
    await old.lead_alone()
    await new.heartbeat()
    broker = old.broker = new.broker = await next_broker(brokers)
    assert consumer_group(broker).members[old.member_id].classic is not None
    # The names of its topics are read first.
    assert (await old.sync_with({})).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert (await old.join()).error_code is ErrorCode.NONE
    kept = await old.get()
    await new.heartbeat()
    assert kept | new.has == EVERY
    assert not kept & new.has


@scenario()
async def test_upgrade_that_is_half_stored_did_not_happen(brokers: Brokers) -> None:
    brokers.store = OneByOne()
    broker = await one_broker(brokers)
    old, new = ClassicClient(broker), ConsumerClient(broker)
    await old.lead_alone()
    with brokers.store.hold("transact", keys.group(GROUP)) as hold:
        joining = asyncio.create_task(new.heartbeat())
        await hold.until_reached()
        assert len(await member_keys(brokers)) == 1
        assert not joining.done()
        broker = old.broker = await next_broker(brokers)
        assert group_type(broker) == ("classic", "Stable")
        assert old.heartbeat() is ErrorCode.NONE
    with refused(ErrorCode.NOT_COORDINATOR):
        await joining
    await broker.shards.shard(GROUP).flush()
    assert await member_keys(brokers) == []


@scenario()
async def test_member_that_joins_first_is_not_deleted_as_left_over(brokers: Brokers) -> None:
    """The next coordinator looks late for what a half stored upgrade has left: it is upgraded again by then."""
    brokers.store = OneByOne()
    broker = await one_broker(brokers)
    old, new = ClassicClient(broker), ConsumerClient(broker)
    await old.lead_alone()
    may_look, look = asyncio.Event(), GroupShard._delete_leftover

    async def look_late(shard: GroupShard) -> None:
        await may_look.wait()
        await look(shard)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupShard, "_delete_leftover", look_late)
        with brokers.store.hold("transact", keys.group(GROUP)) as hold:
            joining = asyncio.create_task(new.heartbeat())
            await hold.until_reached()
            (left_over,) = await member_keys(brokers)
            broker = old.broker = await next_broker(brokers)
        with refused(ErrorCode.NOT_COORDINATOR):
            await joining
        new.broker = broker
        await new.heartbeat()
        stored = await member_keys(brokers)
        assert left_over in stored
        assert len(stored) == 2
        may_look.set()
        await asyncio.sleep(0)
        await broker.shards.shard(GROUP).flush()
    assert await member_keys(brokers) == stored
    new.broker = old.broker = await next_broker(brokers)
    assert set(consumer_group(new.broker).members) == {old.member_id, new.member_id}


@scenario()
async def test_answers_wait_for_the_upgrade(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old, new = ClassicClient(broker), ConsumerClient(broker)
    await old.lead_alone()
    with brokers.store.hold("transact", keys.group_member(GROUP, old.member_id)) as hold:
        joining = asyncio.create_task(new.heartbeat())
        await hold.until_reached()
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        rejoining = asyncio.create_task(old.join())
        await asyncio.sleep(1)
        assert not joining.done()
        assert not rejoining.done()
    await joining
    assert (await rejoining).generation == 2


@scenario(group_consumer_migration_policy=MigrationPolicy.DOWNGRADE)
async def test_settings_forbid_it(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old = ClassicClient(broker)
    await old.lead_alone()
    with refused(ErrorCode.GROUP_ID_NOT_FOUND) as problem:
        await ConsumerClient(broker).heartbeat()
    assert "because online upgrade is disabled" in problem.value.message
    assert old.heartbeat() is ErrorCode.NONE


@scenario()
async def test_group_of_other_bytes_stays_classic(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old = ClassicClient(broker)
    await old.join()
    await old.sync_with({old.member_id: b"mine"})
    with refused(ErrorCode.GROUP_ID_NOT_FOUND) as problem:
        await ConsumerClient(broker).heartbeat()
    assert "because the embedded consumer protocol is malformed" in problem.value.message
    assert group_type(broker) == ("classic", "Stable")


@scenario()
async def test_group_of_another_type_stays_classic(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old = ClassicClient(broker, protocol_type="connect")
    await old.join()
    await old.sync()
    with refused(ErrorCode.GROUP_ID_NOT_FOUND) as problem:
        await ConsumerClient(broker).heartbeat()
    assert "does not use the consumer embedded protocol" in problem.value.message


@scenario(group_consumer_max_size=1)
async def test_full_group_stays_classic(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old = ClassicClient(broker)
    await old.lead_alone()
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        await ConsumerClient(broker).heartbeat()
    assert group_type(broker) == ("classic", "Stable")


@scenario()
async def test_assignment_of_a_deleted_topic_is_dropped(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old = ClassicClient(broker)
    await old.lead_alone()
    await brokers.delete_topic(TOPIC)
    await ConsumerClient(broker).heartbeat()
    assert consumer_group(broker).members[old.member_id].assigned == {}


@scenario()
async def test_partition_of_two_members_is_given_up_first(brokers: Brokers) -> None:
    """A leader gave a partition to both, or a rebalance began again: nobody gets it before both gave it up."""
    broker = await one_broker(brokers)
    first, second = ClassicClient(broker), ClassicClient(broker)
    await asyncio.gather(first.join(), second.join())
    leader = first if first.joined.leader == first.member_id else second
    both = {first.member_id: share(0, 1, 2), second.member_id: share(2, 3)}
    await asyncio.gather(*(one.sync_with(both if one is leader else {}) for one in (first, second)))
    new = ConsumerClient(broker)
    await new.heartbeat()
    members = consumer_group(broker).members
    for one in (first, second):
        member = members[one.member_id]
        assert member.pending_revocation == {TOPIC_ID: {2}}
        assert 2 in union(member.assigned, member.pending_revocation)[TOPIC_ID]
        assert 2 not in member.assigned[TOPIC_ID]
    await first.join_owning(0, 1, 2)
    assert 2 not in await first.get()
    await first.join_owning(*(await first.get()))
    await new.heartbeat()
    assert 2 not in await first.get() | new.has


@scenario()
async def test_leave_of_the_classic_group_is_answered(brokers: Brokers) -> None:
    """The last member's leave waits for the store while a consumer makes the empty group its own."""
    broker = await one_broker(brokers)
    old, new = ClassicClient(broker), ConsumerClient(broker)
    await old.lead_alone()
    store: Metadata = brokers.store
    with store.hold("transact", keys.group(GROUP)) as hold:
        leaving = asyncio.create_task(old.leave())
        await hold.until_reached()
        joining = asyncio.create_task(new.heartbeat())
        await asyncio.sleep(1)
        assert not leaving.done()
        assert not joining.done()
    assert (await leaving).error_code is ErrorCode.NONE
    assert (await joining).member_epoch == 1


@scenario()
async def test_member_without_an_assignment_has_what_it_said(brokers: Brokers) -> None:
    """A rebalance that began again has taken the assignment back; the member works on its partitions."""
    broker = await one_broker(brokers)
    old = ClassicClient(broker, name="cooperative-sticky")
    await old.lead_alone()
    second, third = (ClassicClient(broker, name="cooperative-sticky") for _ in range(2))
    joining = asyncio.create_task(second.join())
    await asyncio.sleep(0)
    await asyncio.gather(old.join_owning(*EVERY), joining)
    joining = asyncio.create_task(third.join())
    await asyncio.sleep(0)
    assert group_type(broker) == ("classic", "PreparingRebalance")
    new = ConsumerClient(broker)
    await new.heartbeat()
    assert (await joining).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert consumer_group(broker).members[old.member_id].assigned == {TOPIC_ID: EVERY}
    assert new.has == frozenset()
