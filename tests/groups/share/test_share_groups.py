"""Share groups by their coordinator: members join, leave and are missed (KIP-932)."""

import asyncio
from collections import Counter

import pytest

from kafscale.groups.modern.assignment import count, partitions_of
from kafscale.groups.modern.topic_changes import TopicChanges
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.consumer.member import ConsumerMember
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    TOPIC,
    Brokers,
    Member,
    empty,
    now_ms,
    refused,
    scenario,
)
from tests.groups.share.member import SharingMember
from tests.groups.share.small_topic import (
    OTHER,
    OTHER_ID,
    SESSION_SEC,
    SMALL,
    SMALL_ID,
    group_of,
    sharing,
    started,
    starts,
    stored_keys,
)

# Joining and leaving


@scenario()
async def test_a_member_joins_and_reads_every_partition(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    answer = await member.heartbeat()
    assert answer.assignment == {SMALL_ID: frozenset(range(3))}
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, 5000)
    assert (await member.heartbeat()).assignment is None
    assert (await member.heartbeat(full=True)).assignment == member.has
    assert await starts(brokers) == {f"{SMALL_ID}/{index}" for index in range(3)}
    assert await stored_keys(brokers) == [keys.group(GROUP), keys.group_member(GROUP, member.member_id)]


@scenario()
async def test_heartbeats_that_change_nothing_write_nothing(brokers: Brokers) -> None:
    broker = await started(brokers)
    members = [sharing(broker) for _ in range(3)]
    for member in members * 2:
        await member.heartbeat()
    written = len(brokers.store.written)
    for _ in range(10):
        await asyncio.sleep(5)
        for member in members:
            await member.heartbeat()
    assert len(brokers.store.written) == written


@scenario()
async def test_members_take_over_their_part_without_waiting(brokers: Brokers) -> None:
    broker = await started(brokers, partitions=4)
    first, second = sharing(broker), sharing(broker)
    await first.heartbeat()
    await second.heartbeat()
    # The first one does not know yet, and both read two of the partitions until it does.
    assert (count(first.has), count(second.has)) == (4, 2)
    await first.heartbeat()
    assert count(first.has) == 2
    assert set(partitions_of(first.has)).isdisjoint(partitions_of(second.has))


@scenario()
async def test_a_hundred_members_share_three_partitions(brokers: Brokers) -> None:
    broker = await started(brokers)
    members = [sharing(broker) for _ in range(100)]
    await asyncio.gather(*(member.heartbeat() for member in members))
    for member in members:
        await member.heartbeat()
    sizes = Counter(partition for member in members for partition in partitions_of(member.has))
    assert sorted(sizes.values()) == [33, 33, 34]
    assert all(count(member.has) == 1 for member in members)
    for member in members[:97]:
        await member.leave()
    for member in members[97:]:
        await member.heartbeat()
    assert {one for member in members[97:] for one in partitions_of(member.has)} == set(sizes)
    assert len(await stored_keys(brokers)) == 4


@scenario()
async def test_a_full_group_takes_nobody(brokers: Brokers) -> None:
    broker = await started(brokers)
    members = [sharing(broker) for _ in range(200)]
    await asyncio.gather(*(member.heartbeat() for member in members))
    late = sharing(broker)
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        await late.heartbeat()
    await members[0].leave()
    await late.heartbeat()
    assert late.epoch > 0


@scenario()
async def test_what_a_member_leaves_goes_to_others(brokers: Brokers) -> None:
    broker = await started(brokers, partitions=4)
    first, second = sharing(broker), sharing(broker)
    for member in (first, second, first):
        await member.heartbeat()
    answer = await second.leave()
    assert (answer.member_epoch, answer.assignment, answer.heartbeat_interval_ms) == (-1, None, 0)
    await first.heartbeat()
    assert count(first.has) == 4
    await first.leave()
    assert group_of(broker).state is GroupState.EMPTY
    assert await stored_keys(brokers) == [keys.group(GROUP)]
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        await first.leave()


@scenario()
async def test_a_silent_member_is_removed_after_its_session(brokers: Brokers) -> None:
    broker = await started(brokers, partitions=4)
    first, second = sharing(broker), sharing(broker)
    for member in (first, second, first):
        await member.heartbeat()
    await asyncio.sleep(SESSION_SEC - 1)
    await first.heartbeat()
    assert count(first.has) == 2
    await asyncio.sleep(1.1)
    await first.heartbeat()
    assert count(first.has) == 4
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        await second.heartbeat()
    second.epoch = 0
    await second.heartbeat()
    assert count(second.has) == 2


@scenario()
async def test_a_member_at_another_epoch_is_fenced_and_joins_again(brokers: Brokers) -> None:
    broker = await started(brokers)
    member, other = sharing(broker), sharing(broker)
    for one in (member, other, member, other):
        await one.heartbeat()
    known, member.epoch = member.epoch, member.epoch + 1
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        await member.heartbeat()
    member.epoch = 0
    answer = await member.heartbeat()
    assert (answer.member_epoch, answer.assignment) == (known, member.has)


@scenario()
async def test_a_lost_answer_is_told_again(brokers: Brokers) -> None:
    broker = await started(brokers, partitions=4)
    first, second = sharing(broker), sharing(broker)
    await first.heartbeat()
    await second.heartbeat()
    epoch, lost = first.epoch, await first.heartbeat()
    assert lost.assignment is not None
    first.epoch = epoch
    assert (await first.heartbeat()).assignment == lost.assignment


# Subscriptions and topics


@scenario()
async def test_a_subscription_changes(brokers: Brokers) -> None:
    broker = await started(brokers)
    await brokers.make_topic(OTHER, OTHER_ID, 2)
    member = sharing(broker)
    await member.heartbeat()
    member.topics = (SMALL, OTHER, "a topic that is not there")
    await member.heartbeat(full=True)
    assert member.has == {SMALL_ID: frozenset(range(3)), OTHER_ID: frozenset(range(2))}
    member.topics = (OTHER,)
    await member.heartbeat(full=True)
    assert set(member.has) == {OTHER_ID}


@scenario()
async def test_topics_grow_and_go(brokers: Brokers) -> None:
    broker = await started(brokers)
    await broker.tell_topics()
    groups = [running for _, running in broker.shards.all_groups()]
    failures = ItemFailures(BackgroundWork.GROUP_TOPICS, Counter())
    changes = TopicChanges(
        broker.view, lambda: [running for _, running in broker.shards.all_groups()], now_ms, failures
    )
    assert not groups
    member = sharing(broker)
    await member.heartbeat()
    await brokers.make_topic(SMALL, SMALL_ID, 5)
    await broker.tell_topics()
    await asyncio.sleep(1)
    await member.heartbeat()
    assert member.has == {SMALL_ID: frozenset(range(5))}
    assert len(await starts(brokers)) == 5
    await brokers.delete_topic(SMALL)
    await broker.tell_topics()
    await asyncio.sleep(1)
    assert (await member.heartbeat()).assignment == {}
    await changes.close()


@scenario()
async def test_a_topic_that_does_not_exist_yet_gives_no_partitions(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker, "nothing")
    assert (await member.heartbeat()).assignment == {}
    assert group_of(broker).state is GroupState.STABLE


# Other types of groups


@scenario()
async def test_members_of_other_protocols_cannot_join_a_share_group(brokers: Brokers) -> None:
    broker = await started(brokers)
    sharer = sharing(broker)
    await sharer.heartbeat()
    for _ in range(2):
        assert (await Member(broker, GROUP).join()).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            await ConsumerMember(broker.coordinator).heartbeat()
        await sharer.leave() if sharer.epoch > 0 else None
    # Empty, it is a share group still.
    assert group_of(broker).state is GroupState.EMPTY


@scenario()
async def test_a_share_group_has_no_committed_offsets(brokers: Brokers) -> None:
    broker = await started(brokers)
    sharer = sharing(broker)
    await sharer.heartbeat()
    await sharer.leave()
    assert await broker.commit(GROUP, 5) is ErrorCode.GROUP_ID_NOT_FOUND
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        await broker.fetch(GROUP)
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        await broker.coordinator.delete_offsets(GROUP, [(TOPIC, 0)])
    member = Member(broker, GROUP)
    member.member_id, member.generation = "m", 1
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await member.sync()).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await member.leave()).error_code is ErrorCode.UNKNOWN_MEMBER_ID


@scenario()
async def test_a_group_of_another_type_takes_no_sharing_members(brokers: Brokers) -> None:
    broker = await started(brokers)
    consumer = ConsumerMember(broker.coordinator)
    await consumer.heartbeat()
    await empty(broker, NEIGHBOUR)
    for group_id in (GROUP, NEIGHBOUR):
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            await sharing(broker, group_id=group_id).heartbeat()
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            broker.coordinator.describe_share(group_id)


@scenario()
async def test_a_member_that_does_not_join_makes_no_group(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    for member.epoch in (1, -1):
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            await member.heartbeat()
    assert broker.totals == (0, 0, 0)


# What is beside the protocol


@scenario()
async def test_a_group_is_described(brokers: Brokers) -> None:
    broker = await started(brokers)
    member = sharing(broker)
    await member.heartbeat()
    group = broker.coordinator.describe_share(GROUP)
    (one,) = group.members
    assert (group.state, group.assignor_name) == ("Stable", "simple")
    assert (group.group_epoch, group.assignment_epoch, one.member_epoch) == (1, 1, 1)
    assert (one.member_id, one.assignment) == (member.member_id, member.has)
    assert one.subscribed_topic_names == {SMALL}
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        broker.coordinator.describe_share(NEIGHBOUR)
    listed = {one.group_id: (one.GROUP_TYPE, one.protocol_type) for one in broker.coordinator.groups()}
    assert listed == {GROUP: ("share", "share")}
    assert broker.shards.totals.by_type["share"] == 1


@scenario(group_memory_bytes=4096)
async def test_members_without_room_are_refused(brokers: Brokers) -> None:
    broker = await started(brokers)
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        for _ in range(10):
            await sharing(broker).heartbeat()


@pytest.mark.parametrize(
    ("topics", "epoch", "member_id"),
    [((), 0, "m"), ((SMALL,), -2, "m"), ((SMALL,), 0, " "), (("t" * 300,) * 10_001, 0, "m")],
)
@scenario()
async def test_requests_that_are_not_legal(
    brokers: Brokers, topics: tuple[str, ...], epoch: int, member_id: str
) -> None:
    broker = await started(brokers)
    member = SharingMember(broker.coordinator, GROUP, topics, member_id=member_id, epoch=epoch)
    with refused(ErrorCode.INVALID_REQUEST):
        await member.heartbeat()
    assert broker.totals == (0, 0, 0)
