"""A consumer group whose last member of that protocol is gone becomes a classic group again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafscale.groups.events import LeavingMember
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.groups import MigrationPolicy
from tests.groups.consumer.mixed_group import (
    EVERY,
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
from tests.groups.coordination import GROUP, Brokers, Coordinating, scenario


async def mixed(
    broker: Coordinating, *, instance_id: str | None = None, **options: object
) -> tuple[ClassicClient, ConsumerClient]:
    """Two members that have two partitions each, at epoch 2."""
    new = ConsumerClient(broker, instance_id=instance_id)
    await new.heartbeat()
    old = ClassicClient(broker, **options)  # type: ignore[arg-type]
    await old.join()
    assert await old.get() == frozenset()
    await new.heartbeat()
    await new.heartbeat()
    await old.join()
    assert await old.get() | new.has == EVERY
    assert group_type(broker) == ("consumer", "Stable")
    return old, new


async def leaves(new: ConsumerClient) -> None:
    await new.leave()


async def is_removed(new: ConsumerClient) -> None:
    left = await new.broker.coordinator.classic.leave(GROUP, (LeavingMember(new.member_id),))
    assert [code for _, code in left.members] == [ErrorCode.NONE]


async def is_silent(new: ConsumerClient) -> None:
    await asyncio.sleep(46)


@pytest.mark.parametrize("goes", [leaves, is_removed, is_silent])
@scenario()
async def test_classic_members_rebalance(
    brokers: Brokers, goes: Callable[[ConsumerClient], Awaitable[None]]
) -> None:
    broker = await one_broker(brokers)
    old, new = await mixed(broker, session_timeout_ms=100_000)
    await goes(new)
    assert group_type(broker) == ("classic", "PreparingRebalance")
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert (await old.sync_with({})).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    joined = await old.join()
    assert (joined.generation, joined.leader) == (3, old.member_id)
    assert (await old.sync_with({old.member_id: share(*EVERY)})).assignment == share(*EVERY)
    assert group_type(broker) == ("classic", "Stable")
    assert await member_keys(brokers) == []


@scenario()
async def test_waiting_join_is_told_to_join_again(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    _, new = await mixed(broker)
    third = ClassicClient(broker)
    with brokers.store.hold("transact", keys.topic("payments")) as hold:
        joining = asyncio.create_task(third.join())
        await hold.until_reached()
        leaving = asyncio.create_task(new.leave())
        await asyncio.sleep(1)
        assert group_type(broker) == ("classic", "PreparingRebalance")
        assert (await joining).error_code is ErrorCode.REBALANCE_IN_PROGRESS
        await leaving


@scenario()
async def test_answers_wait_for_the_downgrade(brokers: Brokers) -> None:
    brokers.store = OneByOne()
    broker = await one_broker(brokers)
    old, new = await mixed(broker)
    with brokers.store.hold("transact", keys.group(GROUP)) as hold:
        leaving = asyncio.create_task(new.leave())
        await hold.until_reached()
        await leaving  # That member's own deletion is stored.
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        joining = asyncio.create_task(old.join())
        await asyncio.sleep(1)
        assert not joining.done()
    assert (await joining).generation == 3


@scenario()
async def test_downgrade_that_is_not_stored_is_made_by_the_next(brokers: Brokers) -> None:
    brokers.store = OneByOne()
    broker = await one_broker(brokers)
    old, new = await mixed(broker)
    with brokers.store.hold("transact", keys.group(GROUP)) as hold:
        leaving = asyncio.create_task(new.leave())
        await hold.until_reached()
        await leaving
        joining = asyncio.create_task(old.join())
        await asyncio.sleep(0)
        broker = old.broker = await next_broker(brokers)
    assert (await joining).error_code is ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(1)
    assert group_type(broker) == ("classic", "PreparingRebalance")
    assert (await old.join()).generation == 3


@scenario()
async def test_downgrade_that_is_half_stored_goes_on(brokers: Brokers) -> None:
    brokers.store = OneByOne()
    broker = await one_broker(brokers)
    old, new = await mixed(broker)
    with brokers.store.hold("transact", keys.group_member(GROUP, old.member_id)) as hold:
        await new.leave()
        await hold.until_reached()
        broker = old.broker = await next_broker(brokers)
    await broker.shards.shard(GROUP).flush()
    assert await member_keys(brokers) == []
    assert group_type(broker) == ("classic", "PreparingRebalance")
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert (await old.join()).generation == 3


@scenario()
async def test_group_upgrades_again_with_what_members_have(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old, new = await mixed(broker)
    kept = EVERY - new.has
    await new.leave()
    other = ConsumerClient(broker, "other")
    await other.heartbeat()
    assert group_type(broker) == ("consumer", "Reconciling")
    (assigned,) = consumer_group(broker).members[old.member_id].assigned.values()
    assert assigned == kept
    assert other.has == EVERY - kept


@scenario(group_consumer_migration_policy=MigrationPolicy.UPGRADE)
async def test_settings_forbid_it(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old, new = await mixed(broker)
    await new.leave()
    assert group_type(broker) == ("consumer", "Assigning")
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await old.join()
    assert await old.get() == EVERY


@scenario(group_max_size=1)
async def test_group_of_too_many_members_stays(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    _, new = await mixed(broker)
    third = ClassicClient(broker)
    assert (await third.join()).error_code is ErrorCode.NONE
    await new.leave()
    assert group_type(broker)[0] == "consumer"


@scenario()
async def test_static_member_replaces_it_without_a_rebalance(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old, new = await mixed(broker, instance_id="one")
    await new.leave(-2)
    back = ClassicClient(broker, instance_id="one")
    assert (await back.join()).error_code is ErrorCode.NONE
    assert back.generation == old.generation
    assert group_type(broker) == ("classic", "Stable")
    assert await back.get() == new.has
    assert old.heartbeat() is ErrorCode.NONE
    assert await member_keys(brokers) == []


@scenario()
async def test_static_member_that_replaces_it_early_rebalances(brokers: Brokers) -> None:
    """The others have not what they should have yet: a partition could have two owners."""
    broker = await one_broker(brokers)
    old = ClassicClient(broker)
    await old.lead_alone()
    new = ConsumerClient(broker, instance_id="one")
    await new.heartbeat()
    await new.leave(-2)
    back = ClassicClient(broker, instance_id="one")
    joining = asyncio.create_task(back.join())
    await asyncio.sleep(1)
    assert not joining.done()
    assert group_type(broker) == ("classic", "PreparingRebalance")
    await asyncio.gather(old.join(), joining)
    assert old.generation == back.generation == 3


@scenario()
async def test_downgrade_waits_for_the_names_of_topics(brokers: Brokers) -> None:
    """A coordinator that has just loaded the group cannot say yet what its members have."""
    broker = await one_broker(brokers)
    old, new = await mixed(broker)
    kept = EVERY - new.has
    with brokers.store.hold("transact", keys.topic("payments")) as hold:
        broker = old.broker = new.broker = await next_broker(brokers)
        await hold.until_reached()
        await new.leave()
        assert group_type(broker)[0] == "consumer"
    await asyncio.sleep(1)
    assert group_type(broker) == ("classic", "PreparingRebalance")
    group = broker.group(GROUP)
    assert group.members[old.member_id].assignment == share(*kept)
