"""Members of the classic protocol in a consumer group: what each of their requests is answered."""

import asyncio
import uuid
from dataclasses import replace

import pytest

from kafscale.formats.consumer_member_record import MAX_MEMBER_BYTES, ConsumerMember
from kafscale.groups.consumer.classic_joins import owned_partitions
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.events import LeavingMember, Protocol
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.groups import MigrationPolicy
from tests.groups.consumer.mixed_group import (
    EVERY,
    TOPIC,
    TOPIC_ID,
    ClassicClient,
    ConsumerClient,
    consumer_group,
    group_type,
    metadata,
    one_broker,
)
from tests.groups.coordination import GROUP, REBALANCE_TIMEOUT_MS, Brokers, Coordinating, refused, scenario


async def with_a_consumer(brokers: Brokers) -> tuple[Coordinating, ConsumerClient]:
    """A consumer group of one member, which has everything."""
    broker = await one_broker(brokers)
    new = ConsumerClient(broker)
    await new.heartbeat()
    assert new.has == EVERY
    return broker, new


@scenario()
async def test_member_joins_without_waiting_for_others(brokers: Brokers) -> None:
    broker, _ = await with_a_consumer(brokers)
    old = ClassicClient(broker, member_id_required=True)
    asked = await old.join()
    assert (asked.error_code, asked.generation) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    joined = await old.join()
    assert (joined.generation, joined.protocol_type, joined.protocol_name) == (2, "consumer", "range")
    assert (joined.leader, joined.members) == ("", ())
    assert await old.get() == frozenset()
    assert old.heartbeat() is ErrorCode.NONE


@scenario()
async def test_partitions_come_once_they_are_free(brokers: Brokers) -> None:
    broker, new = await with_a_consumer(brokers)
    old = ClassicClient(broker)
    await old.join()
    await old.get()
    await new.heartbeat()  # It is told to give up two,
    assert old.heartbeat() is ErrorCode.NONE
    await new.heartbeat()  # and says that it did.
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert (await old.join()).generation == 2
    assert await old.get() == EVERY - new.has
    assert old.heartbeat() is ErrorCode.NONE


@scenario()
async def test_cooperative_member_gives_up_first(brokers: Brokers) -> None:
    broker = await one_broker(brokers)
    old = ClassicClient(broker, name="cooperative-sticky")
    await old.lead_alone()
    new = ConsumerClient(broker)
    await new.heartbeat()
    assert (await old.join_owning(*EVERY)).generation == 1
    kept = await old.get()
    assert len(kept) == 2
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await new.heartbeat()
    assert new.has == frozenset()
    assert (await old.join_owning(*kept)).generation == 2
    assert await old.get() == kept
    await new.heartbeat()
    assert new.has == EVERY - kept


@scenario()
async def test_wrong_requests_are_refused(brokers: Brokers) -> None:
    broker, new = await with_a_consumer(brokers)
    old = ClassicClient(broker)
    await old.join()
    old.generation = 9
    assert old.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    assert (await old.sync_with({})).error_code is ErrorCode.ILLEGAL_GENERATION
    old.generation = 2
    old.protocols = (Protocol("sticky", b""),)
    assert (await old.sync_with({})).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for member_id in ("stranger", new.member_id):
        old.member_id = member_id
        assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await old.sync_with({})).error_code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocols", "protocol_type"),
    [
        ((), "consumer"),
        ((Protocol("range", metadata()),), "connect"),
        ((Protocol("range", b"no subscription"),), "consumer"),
        ((Protocol("sticky", metadata()),), "consumer"),
    ],
    ids=["no protocols", "another type", "other bytes", "no common protocol"],
)
@scenario()
async def test_member_that_does_not_fit_is_refused(
    brokers: Brokers, protocols: tuple[Protocol, ...], protocol_type: str
) -> None:
    broker, _ = await with_a_consumer(brokers)
    await ClassicClient(broker).join()
    other = ClassicClient(broker, protocol_type=protocol_type)
    other.protocols = protocols
    assert (await other.join()).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(consumer_group(broker).members) == 2


@scenario(group_consumer_max_size=1)
async def test_full_group_refuses(brokers: Brokers) -> None:
    broker, _ = await with_a_consumer(brokers)
    assert (await ClassicClient(broker).join()).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


@scenario()
async def test_member_that_cannot_be_stored_is_refused(brokers: Brokers) -> None:
    broker, _ = await with_a_consumer(brokers)
    old = ClassicClient(broker)
    old.protocols = (Protocol("range", metadata() + bytes(MAX_MEMBER_BYTES)),)
    assert (await old.join()).error_code is ErrorCode.UNKNOWN_SERVER_ERROR


@scenario(group_consumer_migration_policy=MigrationPolicy.DISABLED)
async def test_member_that_does_not_join_in_time_is_removed(brokers: Brokers) -> None:
    """Its heartbeats do not help."""
    broker, new = await with_a_consumer(brokers)
    old = ClassicClient(broker, session_timeout_ms=300_000)
    await old.join()
    await old.get()
    third = ConsumerClient(broker, "third")
    await third.heartbeat()
    for _ in range(REBALANCE_TIMEOUT_MS // 10_000):
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await asyncio.gather(new.heartbeat(), third.heartbeat())
        await asyncio.sleep(10)
    await asyncio.sleep(1)
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@scenario()
async def test_member_that_does_not_sync_in_time_is_removed(brokers: Brokers) -> None:
    broker, new = await with_a_consumer(brokers)
    old = ClassicClient(broker, session_timeout_ms=300_000)
    await old.join()
    await asyncio.sleep(REBALANCE_TIMEOUT_MS / 1000 - 1)
    await new.heartbeat()
    assert old.heartbeat() is ErrorCode.NONE
    await asyncio.sleep(2)
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@scenario()
async def test_session_is_the_members_own(brokers: Brokers) -> None:
    broker, new = await with_a_consumer(brokers)
    old = ClassicClient(broker, session_timeout_ms=6_000)
    await old.join()
    await old.get()
    await asyncio.sleep(5)
    assert old.heartbeat() is ErrorCode.NONE
    await asyncio.sleep(7)
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await new.heartbeat()).member_epoch == 3


@scenario()
async def test_join_that_waits_for_the_store_keeps_its_member(brokers: Brokers) -> None:
    broker, _ = await with_a_consumer(brokers)
    old = ClassicClient(broker, session_timeout_ms=6_000)
    brokers.store.is_away = True
    joining = asyncio.create_task(old.join())
    await asyncio.sleep(20)
    assert old.joined.member_id == ""
    brokers.store.is_away = False
    assert (await joining).error_code is ErrorCode.NONE
    assert old.heartbeat() is ErrorCode.NONE


@scenario()
async def test_static_members_replace_each_other(brokers: Brokers) -> None:
    broker, _ = await with_a_consumer(brokers)
    first, second = (ClassicClient(broker, instance_id="one") for _ in range(2))
    await first.join()
    await second.join()
    assert (first.generation, second.generation) == (2, 2)
    assert first.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert (await first.sync_with({})).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert (await first.join()).error_code is ErrorCode.FENCED_INSTANCE_ID
    third = ConsumerClient(broker, "third", instance_id="one")
    assert (await third.heartbeat()).member_epoch == 2
    assert second.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    fourth = ClassicClient(broker, instance_id="one")
    assert (await fourth.join()).generation == 2
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        await third.heartbeat()


@scenario()
async def test_unknown_instance_with_a_member_id_is_refused(brokers: Brokers) -> None:
    broker, _ = await with_a_consumer(brokers)
    old = ClassicClient(broker, instance_id="one")
    old.member_id = "mine"
    assert (await old.join()).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(consumer_group(broker).members) == 1


@scenario()
async def test_members_of_both_protocols_are_removed(brokers: Brokers) -> None:
    broker, new = await with_a_consumer(brokers)
    static = ConsumerClient(broker, "static", instance_id="one")
    await static.heartbeat()
    old = ClassicClient(broker)
    await old.join()
    named = (
        LeavingMember("stranger"),
        LeavingMember("other", "one"),
        LeavingMember("", "one"),
        LeavingMember(old.member_id),
        LeavingMember("", "two"),
    )
    left = await broker.coordinator.classic.leave(GROUP, named)
    assert left.members == tuple(
        zip(
            named,
            (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.NONE,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_MEMBER_ID,
            ),
            strict=True,
        )
    )
    assert list(consumer_group(broker).members) == [new.member_id]
    assert consumer_group(broker).group_epoch == 4
    await broker.coordinator.classic.leave(GROUP, (LeavingMember(new.member_id),))
    assert group_type(broker) == ("consumer", "Empty")


@scenario()
async def test_topics_that_nobody_reads_any_more_are_still_owned(brokers: Brokers) -> None:
    """A member may have a topic whose name the group does not know: it is not taken for given up."""
    broker, _ = await with_a_consumer(brokers)
    group: ConsumerGroup = consumer_group(broker)
    unknown = uuid.UUID(int=99)
    member = replace(
        ConsumerMember(member_id="old"),
        assigned={TOPIC_ID: frozenset({0})},
        pending_revocation={unknown: frozenset({1})},
    )
    named = {TOPIC: frozenset({0}), "forgotten": frozenset({1})}
    assert owned_partitions(group, member, named) == {TOPIC_ID: {0}, unknown: {1}}
    assert owned_partitions(group, member, {TOPIC: frozenset({0})}) == {TOPIC_ID: {0}}


@scenario(groups_stored_max_bytes=64 * 2**20)
async def test_join_beyond_what_all_groups_may_store_is_refused(brokers: Brokers) -> None:
    broker, _ = await with_a_consumer(brokers)
    old = ClassicClient(broker)
    await old.join()
    group = consumer_group(broker)
    broker.shards.totals.stored.record_bytes += 2**30
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await ClassicClient(broker).join()
    assert (await old.join()).error_code is ErrorCode.NONE  # It needs no more room than it has.
    assert len(group.members) == 2
    broker.shards.totals.stored.record_bytes -= 2**30
