"""The coordinator over a store that works: what is written when, what races with what, and how it starts again."""

import asyncio
import random
from uuid import UUID

from kafscale.formats.group_record import MAX_GROUP_RECORD_BYTES
from kafscale.groups.events import LeavingMember, Protocol
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    INITIAL_DELAY_MS,
    NEIGHBOUR,
    SESSION_TIMEOUT_MS,
    TOPIC,
    Brokers,
    Member,
    committed,
    joined,
    refused,
    scenario,
    stable,
    subscription,
)

# What is written when


@scenario()
async def test_first_commit_stores_group_in_same_transaction(brokers: Brokers) -> None:
    broker = await brokers.start()
    brokers.store.written.clear()
    assert await broker.commit(GROUP, 5) is ErrorCode.NONE
    assert await broker.commit(GROUP, 6) is ErrorCode.NONE
    first, second = [{operation.key for operation in written} for written in brokers.store.written]
    assert first == {keys.group(GROUP), keys.group_offset(GROUP, TOPIC, 0)}
    assert second == {keys.group_offset(GROUP, TOPIC, 0)}
    record = await brokers.store.record(GROUP)
    assert record is not None
    assert (record.protocol_type, record.members) == (None, ())


@scenario()
async def test_a_commit_without_offsets_stores_nothing(brokers: Brokers) -> None:
    broker = await brokers.start()
    assert await broker.commit_all(GROUP, {}) is ErrorCode.NONE
    assert await brokers.store.group_keys() == []
    assert broker.coordinator.describe(GROUP) is None


@scenario()
async def test_commit_of_500_partitions_takes_at_most_5_transactions(brokers: Brokers) -> None:
    broker = await brokers.start()
    assert brokers.store.max_operations == 128
    brokers.store.written.clear()
    assert await broker.commit(GROUP, 5, partitions=500) is ErrorCode.NONE
    assert 4 <= len(brokers.store.written) <= 5
    assert await broker.fetch(GROUP) == {(TOPIC, index): 5 for index in range(500)}


@scenario()
async def test_queued_commits_of_one_shard_share_a_transaction(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    await broker.commit(NEIGHBOUR, 1)
    brokers.store.written.clear()
    with brokers.store.hold("transact", keys.group_offsets(GROUP)) as hold:
        commits = [asyncio.create_task(broker.commit(GROUP, 2))]
        await hold.until_reached()
        commits += [
            asyncio.create_task(broker.commit(group_id, offset))
            for offset in range(3, 23)
            for group_id in (GROUP, NEIGHBOUR)
        ]
        await asyncio.sleep(0.001)
        assert brokers.store.written == []
    assert set(await asyncio.gather(*commits)) == {ErrorCode.NONE}
    assert [len(written) for written in brokers.store.written] == [1, 2]
    assert await broker.fetch(GROUP) == await broker.fetch(NEIGHBOUR) == {(TOPIC, 0): 22}


@scenario()
async def test_large_commits_are_split_below_what_a_store_takes(brokers: Brokers) -> None:
    broker = await brokers.start()
    brokers.store.written.clear()
    assert await broker.commit(GROUP, 5, partitions=100, metadata="x" * 32_000) is ErrorCode.NONE
    sizes = [
        sum(len(operation.key) + len(operation.value) for operation in written if isinstance(operation, Put))
        for written in brokers.store.written
    ]
    assert sum(sizes) > 3_200_000
    assert max(sizes) <= 1024 * 1024
    assert len(await brokers.store.offsets(GROUP)) == 100


@scenario()
async def test_long_names_count_towards_the_size_of_a_transaction(brokers: Brokers) -> None:
    broker = await brokers.start()
    brokers.store.written.clear()
    long_name = "g" * 30_000
    assert await broker.commit(long_name, 5, partitions=100) is ErrorCode.NONE
    for written in brokers.store.written:
        assert sum(len(operation.key) for operation in written) <= 1024 * 1024
    assert len(await brokers.store.offsets(long_name)) == 100


@scenario()
async def test_heartbeats_write_nothing_and_keep_the_members(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP) for _ in range(3)]
    await stable(*members)
    brokers.store.written.clear()
    for _ in range(100):
        await asyncio.sleep(SESSION_TIMEOUT_MS / 2000)
        assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 3
    assert brokers.store.written == []
    assert broker.is_in(GROUP, GroupState.STABLE)


@scenario()
async def test_generation_is_stored_once_before_assignments_are_sent(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP) for _ in range(3)]
    await joined(*members)
    brokers.store.written.clear()
    with brokers.store.hold("transact", keys.group(GROUP)) as hold:
        syncs = [asyncio.create_task(member.sync()) for member in members]
        await hold.until_reached()
        await asyncio.sleep(0.001)
        assert not any(sync.done() for sync in syncs)
    answers = await asyncio.gather(*syncs)
    assert [answer.assignment for answer in answers] == [
        b"part of " + member.member_id.encode() for member in members
    ]
    assert [[operation.key for operation in written] for written in brokers.store.written] == [
        [keys.group(GROUP)]
    ]
    record = await brokers.store.record(GROUP)
    assert record is not None
    assert {member.member_id: member.assignment for member in record.members} == {
        member.member_id: answer.assignment for member, answer in zip(members, answers, strict=True)
    }


@scenario()
async def test_group_too_large_to_store_gets_error_and_continues(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await joined(member)
    too_large = random.Random(1).randbytes(MAX_GROUP_RECORD_BYTES + 1)
    assert (await member.sync(too_large)).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await brokers.store.record(GROUP) is None
    assert member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await stable(member)
    assert member.generation == 2
    assert await member.commit(7) is ErrorCode.NONE
    assert await broker.commit(NEIGHBOUR, 7) is ErrorCode.NONE


# Offsets


@scenario()
async def test_only_groups_without_members_take_commits_from_outside(brokers: Brokers) -> None:
    broker = await brokers.start()
    commit = broker.coordinator.commit
    offsets = {(TOPIC, 0): committed(1)}
    for group_id in (GROUP, NEIGHBOUR):
        refused = await commit(group_id, member_id="m", group_instance_id=None, generation=0, offsets=offsets)
        assert refused is ErrorCode.ILLEGAL_GENERATION
        assert broker.coordinator.describe(group_id) is None
    member = Member(broker, GROUP)
    await stable(member)
    assert await broker.commit(GROUP, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await member.commit(2) is ErrorCode.NONE
    await member.leave()
    assert await member.commit(3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await broker.commit(GROUP, 4) is ErrorCode.NONE
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 4}


@scenario()
async def test_commit_during_first_join_stays_with_the_group(brokers: Brokers) -> None:
    """The group's first record says nothing of members; it must not replace the one that does."""
    broker = await brokers.start()
    member = Member(broker, GROUP)
    with brokers.store.hold("transact", keys.group_offsets(GROUP)) as hold:
        commit = asyncio.create_task(broker.commit(GROUP, 5))
        await hold.until_reached()
        joining = asyncio.create_task(stable(member))
        await asyncio.sleep(1.0)
        assert broker.is_in(GROUP, GroupState.COMPLETING_REBALANCE)
        assert await broker.commit(GROUP, 6) is ErrorCode.UNKNOWN_MEMBER_ID
        hold.release()
        assert await commit is ErrorCode.NONE
        await joining
    record = await brokers.store.record(GROUP)
    assert record is not None
    assert [one.member_id for one in record.members] == [member.member_id]
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 5}


@scenario()
async def test_only_a_stable_fetch_waits_for_commits_in_flight(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    with brokers.store.hold("transact", keys.group_offsets(GROUP)) as hold:
        commit = asyncio.create_task(broker.commit(GROUP, 2))
        await hold.until_reached()
        assert await broker.fetch(GROUP) == {(TOPIC, 0): 1}
        fetch = asyncio.create_task(broker.fetch(GROUP, require_stable=True))
        await asyncio.sleep(1.0)
        assert not fetch.done()
    assert await fetch == {(TOPIC, 0): 2}
    assert await commit is ErrorCode.NONE


@scenario()
async def test_offsets_mean_the_topic_as_it_was_then(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit_all(GROUP, {(TOPIC, 0): committed(1), ("other", 0): committed(2)})
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 1}
    await brokers.delete_topic(TOPIC)
    await broker.tell_topics()
    assert await broker.fetch(GROUP) == {}
    await brokers.make_topic(TOPIC, UUID(int=2))
    await broker.tell_topics()
    assert await broker.fetch(GROUP) == {}
    await broker.commit(GROUP, 3, topic_id=UUID(int=2))
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 3}


@scenario()
async def test_a_view_that_has_not_heard_of_a_topic_hides_no_offset(brokers: Brokers) -> None:
    """`auto.offset.reset` would skip or repeat records: the offset was acknowledged."""
    broker = await brokers.start()
    await brokers.make_topic("new", UUID(int=7))
    assert broker.view.topic("new") is None
    await broker.commit_all(GROUP, {("new", 0): committed(5, topic_id=UUID(int=7))})
    assert await broker.fetch(GROUP) == {("new", 0): 5}


@scenario()
async def test_a_view_that_shows_a_deleted_topic_keeps_no_offset(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    await brokers.delete_topic(TOPIC)
    assert await broker.fetch(GROUP) == {}
    await brokers.make_topic(TOPIC, UUID(int=2))
    assert await broker.fetch(GROUP) == {}
    await broker.commit(GROUP, 3, topic_id=UUID(int=2))
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 3}


@scenario()
async def test_a_damaged_topic_record_hides_no_offset(brokers: Brokers) -> None:
    """Not of that topic, from which consumers go on once it is mended, and not of the group's others."""
    broker = await brokers.start()
    await brokers.make_topic("other", UUID(int=7))
    await broker.commit_all(
        GROUP, {(TOPIC, 0): committed(1), ("other", 0): committed(2, topic_id=UUID(int=7))}
    )
    await MemoryStore.transact(brokers.store, [], [Put(keys.topic(TOPIC), b"broken")])
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 1, ("other", 0): 2}
    await broker.expiry.check()
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 1, ("other", 0): 2}


@scenario()
async def test_unreadable_offsets_are_an_error_not_missing(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1, partitions=2)
    key = keys.group_offset(GROUP, TOPIC, 1)
    await MemoryStore.transact(brokers.store, [], [Put(key, b"\0\1broken")])
    with refused(ErrorCode.UNKNOWN_SERVER_ERROR) as problem:
        await broker.fetch(GROUP)
    assert key in str(problem.value)


@scenario()
async def test_offsets_of_topics_that_members_read_cannot_be_deleted(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP, protocols=(Protocol("range", subscription(TOPIC)),))
    await stable(member)
    assert await broker.commit_all(NEIGHBOUR, {(TOPIC, 0): committed(1)}) is ErrorCode.NONE
    assert await member.commit(1, partitions=2) is ErrorCode.NONE
    other = {("other", 0): committed(1)}
    assert await broker.coordinator.commit(
        GROUP, member_id=member.member_id, group_instance_id=None, generation=1, offsets=other
    ) is ErrorCode.NONE  # fmt: skip
    assert await broker.coordinator.delete_offsets(GROUP, [(TOPIC, 0), ("other", 0), ("never", 3)]) == {
        (TOPIC, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("other", 0): ErrorCode.NONE,
        ("never", 3): ErrorCode.NONE,
    }
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 1, (TOPIC, 1): 1}
    await member.leave()
    assert await broker.coordinator.delete_offsets(GROUP, [(TOPIC, 0)]) == {(TOPIC, 0): ErrorCode.NONE}
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 1): 1}
    assert await brokers.store.offsets(NEIGHBOUR) == {(TOPIC, 0): 1}


@scenario()
async def test_offsets_stay_while_non_consumer_group_has_members(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP, protocol_type="connect")
    await stable(member)
    with refused(ErrorCode.NON_EMPTY_GROUP):
        await broker.coordinator.delete_offsets(GROUP, [(TOPIC, 0)])
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        await broker.coordinator.delete_offsets("nobody", [(TOPIC, 0)])


# What is refused


@scenario()
async def test_members_belong_to_groups_with_names(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, "")
    with refused(ErrorCode.INVALID_GROUP_ID):
        await member.join()
    with refused(ErrorCode.INVALID_GROUP_ID):
        member.heartbeat()
    assert await broker.commit("", 5) is ErrorCode.NONE
    assert await broker.fetch("") == {(TOPIC, 0): 5}


@scenario(group_min_session_timeout_ms=1000, group_max_session_timeout_ms=2000)
async def test_session_timeouts_have_limits(brokers: Brokers) -> None:
    broker = await brokers.start()
    for timeout_ms in (999, 2001):
        with refused(ErrorCode.INVALID_SESSION_TIMEOUT):
            await Member(broker, GROUP, session_timeout_ms=timeout_ms).join()
    assert broker.coordinator.describe(GROUP) is None
    await stable(*(Member(broker, GROUP, session_timeout_ms=timeout_ms) for timeout_ms in (1000, 2000)))


@scenario(group_max_size=2)
async def test_a_group_has_its_largest_size(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP), Member(broker, GROUP)]
    await stable(*members)
    third = Member(broker, GROUP)
    assert (await third.join()).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    await members.pop().leave()
    await asyncio.gather(joined(third), joined(members[0]))


@scenario()
async def test_a_group_that_is_not_there_has_no_members(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    member.member_id, member.generation = "somebody", 3
    assert member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await member.sync()).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await member.join()).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    left = await member.leave()
    assert left.error_code is ErrorCode.NONE
    assert left.members == ((LeavingMember("somebody"), ErrorCode.UNKNOWN_MEMBER_ID),)
    assert list(broker.coordinator.groups()) == []


@scenario(group_initial_rebalance_delay_ms=3 * INITIAL_DELAY_MS)
async def test_members_joining_within_delay_share_first_generation(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP) for _ in range(5)]
    joins = []
    for member in members:
        joins.append(asyncio.create_task(member.join()))
        await asyncio.sleep(INITIAL_DELAY_MS / 1000)
    answers = await asyncio.gather(*joins)
    assert {answer.generation for answer in answers} == {1}
    assert sorted(len(answer.members) for answer in answers) == [0, 0, 0, 0, 5]
