"""Offsets of share groups by their coordinator: described, altered, deleted, and what members do meanwhile."""

import asyncio
import uuid
from dataclasses import replace

from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.formats.share_start_record import MAX_STATE_EPOCH, ShareStartRecord, encode_share_start
from kafscale.formats.share_state_record import (
    ShareStateRecord,
    StoredShareRun,
    StoredShareState,
    encode_share_state,
)
from kafscale.groups.share.offsets import DescribedStart
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from kafscale.share.state.stored_group import StoredShareGroup, read_share_group
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    TOPIC_ID,
    Brokers,
    Coordinating,
    empty,
    now_ms,
    refused,
    scenario,
)
from tests.groups.share.member import SharingMember

SMALL, SMALL_ID = "tasks", uuid.UUID(int=5)
OTHER, OTHER_ID = "returns", uuid.UUID(int=6)
PRINCIPAL = "User:admin"
AVAILABLE, ACKNOWLEDGED, ARCHIVED = StoredShareState


async def started(brokers: Brokers) -> Coordinating:
    """A broker, and two small topics."""
    await brokers.make_topic(SMALL, SMALL_ID, 3)
    await brokers.make_topic(OTHER, OTHER_ID, 1)
    return await brokers.start()


def sharing(broker: Coordinating, *topics: str, group_id: str = GROUP) -> SharingMember:
    """A client that has not joined."""
    return SharingMember(broker.coordinator, group_id, topics or (SMALL,))


async def was_there(broker: Coordinating, *topics: str, group_id: str = GROUP) -> None:
    """A share group whose member has left."""
    member = sharing(broker, *topics, group_id=group_id)
    await member.heartbeat()
    await member.leave()


async def alter(broker: Coordinating, *offsets: int, topic_id: uuid.UUID = SMALL_ID) -> dict[int, ErrorCode]:
    """Set the offsets of the first partitions; the errors of those that were refused."""
    wanted = {(topic_id, index): offset for index, offset in enumerate(offsets)}
    found = await broker.coordinator.share_offsets.alter(GROUP, wanted, PRINCIPAL)
    return {index: problem.code for (_, index), problem in found.items()}


async def delete(broker: Coordinating, *topic_ids: uuid.UUID, group_id: str = GROUP) -> set[uuid.UUID]:
    """The topics that the group had."""
    return set(await broker.coordinator.share_offsets.delete(group_id, topic_ids or (SMALL_ID,)))


async def stored(brokers: Brokers, group_id: str = GROUP) -> StoredShareGroup:
    """All that there is of the group."""
    return await read_share_group(brokers.store, group_id)


async def starts(brokers: Brokers) -> dict[int, tuple[int, int]]:
    """State epoch and start offset of each partition of the small topic."""
    found = (await stored(brokers)).starts
    return {
        place.partition: (start.state_epoch, start.start_offset)
        for place, start in found.items()
        if place.topic_id == SMALL_ID
    }


async def put(brokers: Brokers, key: str, value: bytes) -> None:
    """As another broker writes it."""
    await MemoryStore.transact(brokers.store, [], [Put(key, value)])


async def led(brokers: Brokers, index: int, state: ShareStateRecord) -> None:
    """The partition's leader writes a state."""
    await put(brokers, keys.share_state(SharePartitionId(GROUP, SMALL_ID, index)), encode_share_state(state))


def state(start_offset: int, *runs: StoredShareRun, state_epoch: int = 0) -> ShareStateRecord:
    return ShareStateRecord(state_epoch=state_epoch, leader_epoch=4, start_offset=start_offset, runs=runs)


async def described(broker: Coordinating) -> dict[int, DescribedStart]:
    found = await broker.coordinator.share_offsets.describe(GROUP)
    return {index: one for (topic_id, index), one in found.items() if topic_id == SMALL_ID}


# Describing


@scenario()
async def test_how_far_a_group_is(brokers: Brokers) -> None:
    broker = await started(brokers)
    assert await described(broker) == {}
    await sharing(broker).heartbeat()
    runs = (
        StoredShareRun(4, 6, AVAILABLE, 1),
        StoredShareRun(7, 8, ACKNOWLEDGED, 1),
        StoredShareRun(9, 9, ARCHIVED, 5),
    )
    await led(brokers, 0, state(4, *runs))
    await led(brokers, 1, state(30))
    await led(brokers, 2, state(7, state_epoch=3))  # Of a start that is not that of now.
    for index, end in ((0, 20), (1, 25)):
        record = PartitionRecord(leader_epoch=0, log_end_offset=end)
        await put(brokers, keys.partition(SMALL, index), encode_partition_record(record))
    assert await described(broker) == {
        0: DescribedStart(4, 4, 13),
        1: DescribedStart(30, 4, 0),  # The record of the partition is older than the state.
        2: DescribedStart(-1, 0, -1),
    }


@scenario()
async def test_a_partition_without_a_record_has_no_lag(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker)
    await led(brokers, 0, state(4))
    assert (await described(broker))[0] == DescribedStart(4, 4, -1)
    brokers.store.is_away = True
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await described(broker)


# Altering


@scenario()
async def test_altered_offsets_are_stored_with_who_did_it(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker)
    assert await alter(broker, 7, 10**6) == {}
    assert await starts(brokers) == {0: (1, 7), 1: (1, 10**6), 2: (0, -1)}
    start = (await stored(brokers)).starts[SharePartitionId(GROUP, SMALL_ID, 0)]
    assert start == ShareStartRecord(state_epoch=1, start_offset=7, changed_ms=now_ms(), changed_by=PRINCIPAL)
    assert await alter(broker, -1) == {}
    assert (await starts(brokers))[0] == (2, -1)
    # A state of before means nothing any more.
    await led(brokers, 0, state(5))
    assert (await described(broker))[0] == DescribedStart(-1, 0, -1)
    # Who joins reads from there.
    await sharing(broker).heartbeat()
    assert await starts(brokers) == {0: (2, -1), 1: (1, 10**6), 2: (0, -1)}


@scenario()
async def test_a_group_is_made_for_its_offsets(brokers: Brokers) -> None:
    broker = await started(brokers)
    assert await alter(broker, -2) == {0: ErrorCode.INVALID_REQUEST}
    assert broker.coordinator.any_group(GROUP) is None
    assert await alter(broker, 3, -2) == {1: ErrorCode.INVALID_REQUEST}
    group = broker.coordinator.describe_share(GROUP)
    assert (group.state, group.group_epoch, group.assignment_epoch) == ("Empty", 0, 0)
    assert await starts(brokers) == {0: (0, 3)}
    after = await brokers.start()
    assert after.coordinator.describe_share(GROUP) == group
    assert (await described(after))[0].start_offset == 3
    await sharing(after).heartbeat()
    assert await starts(brokers) == {0: (0, 3), 1: (0, -1), 2: (0, -1)}


@scenario()
async def test_groups_with_members_and_other_groups_are_refused(brokers: Brokers) -> None:
    broker = await started(brokers)
    with refused(ErrorCode.GROUP_ID_NOT_FOUND) as problem:
        await delete(broker)
    assert problem.value.message == f"Group {GROUP} not found."
    member = sharing(broker)
    await member.heartbeat()
    with refused(ErrorCode.NON_EMPTY_GROUP) as problem:
        await alter(broker, 7)
    assert problem.value.message == "The group is not empty."
    with refused(ErrorCode.NON_EMPTY_GROUP):
        await delete(broker)
    assert await starts(brokers) == dict.fromkeys(range(3), (0, -1))
    await empty(broker, NEIGHBOUR)
    offsets = broker.coordinator.share_offsets
    with refused(ErrorCode.GROUP_ID_NOT_FOUND) as problem:
        await offsets.alter(NEIGHBOUR, {(SMALL_ID, 0): 1}, PRINCIPAL)
    assert problem.value.message == f"Group {NEIGHBOUR} is not a share group."
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        await delete(broker, group_id=NEIGHBOUR)
    for request in (offsets.alter("", {(SMALL_ID, 0): 1}, PRINCIPAL), offsets.delete("", ())):
        with refused(ErrorCode.INVALID_GROUP_ID) as problem:
            await request
        assert problem.value.message == "The group id is invalid."


@scenario()
async def test_a_member_that_joins_before_the_write_keeps_its_starts(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker)
    with brokers.store.hold("range", keys.SHARE_STARTS) as hold:
        altering = asyncio.create_task(alter(broker, 7))
        deleting = asyncio.create_task(delete(broker))
        await hold.until_reached()
        joining = asyncio.create_task(sharing(broker).heartbeat())
        await asyncio.sleep(0.1)
        hold.release()
        for task in (altering, deleting):
            with refused(ErrorCode.NON_EMPTY_GROUP):
                await task
        await joining
    assert await starts(brokers) == dict.fromkeys(range(3), (0, -1))


@scenario()
async def test_a_member_that_joins_during_the_write_reads_from_there(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker)
    await delete(broker)
    member = sharing(broker)
    with brokers.store.hold("transact", keys.SHARE_STATES) as hold:
        altering = asyncio.create_task(alter(broker, 7))
        await hold.until_reached()
        joining = asyncio.create_task(member.heartbeat())
        await asyncio.sleep(1)
        assert not joining.done()
        hold.release()
        assert await altering == {}
        await joining
    assert member.has == {SMALL_ID: frozenset(range(3))}
    assert await starts(brokers) == {0: (0, 7), 1: (0, -1), 2: (0, -1)}


@scenario()
async def test_late_starts_do_not_undo_an_alteration(brokers: Brokers) -> None:
    """A member joins and leaves while its starts are looked for; an administrator comes between."""
    broker = await started(brokers)
    await was_there(broker, OTHER)
    member = sharing(broker)
    with brokers.store.hold("range", keys.SHARE_STARTS) as hold:
        altering = asyncio.create_task(alter(broker, 7, 8, 9))
        await hold.until_reached()
        joining = asyncio.create_task(member.heartbeat())
        await asyncio.sleep(0.1)
        leaving = asyncio.create_task(member.leave())
        await asyncio.sleep(0.1)
        hold.release()
        assert await altering == {}
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await joining
        await leaving
    await asyncio.sleep(1)
    assert await starts(brokers) == {0: (0, 7), 1: (0, 8), 2: (0, 9)}


@scenario()
async def test_late_starts_are_not_left_over_of_a_deleted_group(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker, OTHER)
    member = sharing(broker)
    with brokers.store.hold("range", keys.SHARE_STARTS) as hold:
        joining = asyncio.create_task(member.heartbeat())
        await hold.until_reached()
        leaving = asyncio.create_task(member.leave())
        await asyncio.sleep(0.1)
        deleting = asyncio.create_task(broker.coordinator.delete(GROUP))
        await asyncio.sleep(0.1)
        hold.release()
        assert await deleting is ErrorCode.NONE
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await joining
        await leaving
    await asyncio.sleep(1)
    assert (await stored(brokers)).start_keys == []


@scenario()
async def test_alterations_at_the_same_time_come_one_by_one(
    brokers: Brokers,
) -> None:
    broker = await started(brokers)
    await asyncio.gather(*(alter(broker, offset) for offset in range(5)))
    epoch, offset = (await starts(brokers))[0]
    assert (epoch, offset) == (4, 4)


@scenario()
async def test_an_alteration_that_the_store_does_not_take_in_time(brokers: Brokers) -> None:
    broker = await started(brokers)
    brokers.store.is_away = True
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await alter(broker, 7)
    assert broker.coordinator.any_group(GROUP) is None
    brokers.store.is_away = False
    await was_there(broker)
    with brokers.store.hold("transact", keys.SHARE_STARTS) as hold:
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await alter(broker, 8)
        # It comes true after all, and the next one knows.
        altering = asyncio.create_task(alter(broker, 9))
        await asyncio.sleep(0.1)
        hold.release()
        assert await altering == {}
    assert (await starts(brokers))[0] == (2, 9)


@scenario()
async def test_what_cannot_be_read_is_not_altered_but_deleted(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker)
    place = SharePartitionId(GROUP, SMALL_ID, 1)
    await put(brokers, keys.share_state(place), b"?")
    assert await alter(broker, 7, 7) == {1: ErrorCode.UNKNOWN_SERVER_ERROR}
    await put(brokers, keys.share_start(place), b"?")
    assert await alter(broker, 7, 7) == {1: ErrorCode.UNKNOWN_SERVER_ERROR}
    last = replace((await stored(brokers)).starts[place._replace(partition=2)], state_epoch=MAX_STATE_EPOCH)
    await put(brokers, keys.share_start(place._replace(partition=2)), encode_share_start(last))
    with refused(ErrorCode.INVALID_REQUEST):
        await alter(broker, 1, 1, 1)
    assert await delete(broker) == {SMALL_ID}
    assert await alter(broker, 1, 1, 1) == {}
    assert await starts(brokers) == dict.fromkeys(range(3), (0, 1))


# Deleting


@scenario()
async def test_deleted_offsets_leave_nothing_and_the_group_stays(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker, SMALL, OTHER)
    await led(brokers, 0, state(5))
    await put(brokers, f"{keys.group_share_starts(GROUP)}?", b"")
    assert await delete(broker, SMALL_ID, TOPIC_ID) == {SMALL_ID}
    left = await stored(brokers)
    assert [place.topic_id for place in left.starts] == [OTHER_ID]
    assert left.state_keys == []
    assert await delete(broker, SMALL_ID) == set()
    assert broker.coordinator.describe_share(GROUP).state == GroupState.EMPTY.value
    await sharing(broker).heartbeat()
    assert await starts(brokers) == dict.fromkeys(range(3), (0, -1))


@scenario()
async def test_a_group_that_is_being_deleted_is_left_alone(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker)
    with brokers.store.hold("transact", keys.SHARE_STARTS) as hold:
        altering = asyncio.create_task(alter(broker, 7))
        await hold.until_reached()
        waiting = asyncio.create_task(alter(broker, 8))
        await asyncio.sleep(0.1)
        deleting = asyncio.create_task(broker.coordinator.delete(GROUP))
        await asyncio.sleep(0.1)
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await alter(broker, 9)
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await delete(broker)
        hold.release()
        assert await altering == {}
        assert await deleting is ErrorCode.NONE
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await waiting
    left = await stored(brokers)
    assert (left.start_keys, left.state_keys) == ([], [])
    assert await alter(broker, 2) == {}
    assert await starts(brokers) == {0: (0, 2)}


# Topics that are deleted


@scenario()
async def test_starts_and_states_go_with_their_topic(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker, SMALL, OTHER)
    await led(brokers, 0, state(5))
    await broker.expiry.check()
    assert len((await stored(brokers)).start_keys) == 4
    await brokers.delete_topic(SMALL)
    await brokers.make_topic(SMALL, uuid.UUID(int=9), 1)  # Another of the same name is another topic.
    brokers.store.is_away = True
    await asyncio.sleep(8 * 24 * 3600)
    await broker.expiry.check()  # It is done again, not in a week.
    brokers.store.is_away = False
    await broker.tell_topics()
    await put(brokers, keys.topic("damaged"), b"?")
    await broker.expiry.check()
    assert len((await stored(brokers)).start_keys) == 4, "the topic may be the one that cannot be read"


@scenario()
async def test_a_view_that_lags_costs_no_start(brokers: Brokers) -> None:
    broker = await started(brokers)
    await was_there(broker, SMALL, OTHER)
    await led(brokers, 0, state(5))
    # The broker's view has never heard of one of the topics.
    assert broker.view.topic(SMALL) is not None
    await brokers.delete_topic(OTHER)
    await broker.tell_topics()
    await brokers.make_topic(OTHER, OTHER_ID, 1)
    await broker.expiry.check()
    assert len((await stored(brokers)).start_keys) == 4
    await brokers.delete_topic(SMALL)
    await broker.tell_topics()
    await broker.expiry.check()
    left = await stored(brokers)
    assert [place.topic_id for place in left.starts] == [OTHER_ID]
    assert left.state_keys == []
    assert broker.coordinator.describe_share(GROUP).state == "Empty"
