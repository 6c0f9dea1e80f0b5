"""Share groups by their coordinator: members join, leave and are missed, brokers follow each other (KIP-932)."""

import asyncio
import uuid
from collections import Counter

import pytest

from kafscale.formats.share_group_record import decode_share_group
from kafscale.groups.modern.assignment import count, partitions_of
from kafscale.groups.modern.topic_changes import TopicChanges
from kafscale.groups.share.share_group import ShareGroup
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
    Coordinating,
    Member,
    empty,
    now_ms,
    refused,
    scenario,
)
from tests.groups.share.member import SharingMember

SMALL, SMALL_ID = "tasks", uuid.UUID(int=5)
OTHER, OTHER_ID = "returns", uuid.UUID(int=6)
SESSION_SEC = 45


async def started(brokers: Brokers, partitions: int = 3) -> Coordinating:
    """A broker, and a small topic."""
    await brokers.make_topic(SMALL, SMALL_ID, partitions)
    return await brokers.start()


def sharing(broker: Coordinating, *topics: str, group_id: str = GROUP) -> SharingMember:
    """A client that has not joined."""
    return SharingMember(broker.coordinator, group_id, topics or (SMALL,))


def group_of(broker: Coordinating) -> ShareGroup:
    """The group, which must be there."""
    group = broker.coordinator.any_group(GROUP)
    assert isinstance(group, ShareGroup)
    return group


async def starts(brokers: Brokers, group_id: str = GROUP) -> set[str]:
    """The partitions that have a start, as `topic id/index`."""
    prefix = keys.group_share_starts(group_id)
    return {item.key.removeprefix(prefix) for item in (await brokers.store.range(prefix)).items}


async def stored_keys(brokers: Brokers) -> list[str]:
    """The group's record and its members."""
    found = [await brokers.store.range(prefix) for prefix in (keys.group(GROUP), keys.group_members(GROUP))]
    return [item.key for snapshot in found for item in snapshot.items]


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
