"""Commits past a limit: refused whole, and what was there before goes on."""

import asyncio
from uuid import UUID

import pytest

from kafscale.groups.commits import PartlyCommittedError
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    TOPIC,
    TOPIC_ID,
    Brokers,
    Coordinating,
    Member,
    committed,
    refused,
    scenario,
    stable,
)

KIB = 1024
MIB = 1024 * 1024
TEXT = "x" * 4000


async def stored_bytes(brokers: Brokers) -> int:
    """Bytes of all groups in the store, by its keys and values."""
    records = await MemoryStore.range(brokers.store, keys.GROUPS)
    offsets = await MemoryStore.range(brokers.store, keys.GROUP_OFFSETS)
    return sum(len(item.key) + len(item.value) for item in (*records.items, *offsets.items))


def counted_bytes(broker: Coordinating) -> int:
    return broker.shards.totals.stored.all_bytes


@scenario()
async def test_commit_of_ten_thousand_texts_stores_nothing(brokers: Brokers) -> None:
    broker = await brokers.start()
    with refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        await broker.commit(GROUP, 1, partitions=10_000, metadata=TEXT)
    assert await brokers.store.group_keys() == []
    assert counted_bytes(broker) == 0
    assert broker.coordinator.describe(GROUP) is None


@scenario(group_offsets_max_bytes=64 * KIB)
async def test_a_group_past_its_limit_commits_what_it_had(brokers: Brokers) -> None:
    broker = await brokers.start()
    assert await broker.commit(GROUP, 1, partitions=12, metadata=TEXT) is ErrorCode.NONE
    with refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        await broker.commit(GROUP, 2, partitions=16, metadata=TEXT)
    assert set((await brokers.store.offsets(GROUP)).values()) == {1}
    assert await broker.commit(GROUP, 3, partitions=12, metadata=TEXT) is ErrorCode.NONE
    assert await broker.commit(GROUP, 4, partitions=16) is ErrorCode.NONE
    assert await broker.commit(NEIGHBOUR, 1, partitions=12, metadata=TEXT) is ErrorCode.NONE


@scenario(group_offsets_max_bytes=64 * KIB)
async def test_deleted_offsets_make_room(brokers: Brokers) -> None:
    broker = await brokers.start()
    assert await broker.commit(GROUP, 1, partitions=14, metadata=TEXT) is ErrorCode.NONE
    with refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        await broker.commit_all(GROUP, {(TOPIC, index): committed(2, metadata=TEXT) for index in (20, 21)})
    await broker.coordinator.delete_offsets(GROUP, [(TOPIC, 0), (TOPIC, 1)])
    assert await broker.commit_all(
        GROUP, {(TOPIC, index): committed(2, metadata=TEXT) for index in (20, 21)}
    ) is ErrorCode.NONE  # fmt: skip
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert counted_bytes(broker) == 0


@scenario(group_offsets_max_bytes=MIB, groups_stored_max_bytes=MIB)
async def test_groups_that_fill_the_store_leave_room_for_rebalances(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await stable(member)
    assert await member.commit(1) is ErrorCode.NONE
    taken = 0
    with refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        for number in range(1000):
            await broker.commit(f"filler-{number}", 1, partitions=10, metadata=TEXT)
            taken = number
    assert taken > 10
    assert await stored_bytes(brokers) <= 0.75 * MIB
    await broker.commit("one more", 1)
    with refused(ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
        await broker.commit("one more", 1, partitions=100, metadata=TEXT)
    await stable(Member(broker, GROUP), member)
    assert await member.commit(2) is ErrorCode.NONE


@scenario(group_offsets_max_bytes=MIB, groups_stored_max_bytes=MIB)
async def test_small_groups_stop_at_the_limit_for_all(brokers: Brokers) -> None:
    broker = await brokers.start()
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        for number in range(10_000):
            await Member(broker, f"group-{number}").join()
            await broker.shards.shard(f"group-{number}").flush()
            assert await fill(broker, f"filler-{number}")
    assert await stored_bytes(brokers) <= MIB


async def fill(broker: Coordinating, group_id: str) -> bool:
    """Commit as much as is taken, and at least begin the group."""
    for partitions in (200, 20, 1):
        try:
            await broker.commit(group_id, 1, partitions=partitions)
        except Exception as problem:
            if getattr(problem, "code", None) is not ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                raise
    return True


@scenario()
async def test_the_next_coordinator_counts_what_is_there(brokers: Brokers) -> None:
    first = await brokers.start()
    await first.commit(GROUP, 1, partitions=10, metadata=TEXT)
    await first.commit(NEIGHBOUR, 1, partitions=3)
    second = await brokers.start()
    await second.commit(NEIGHBOUR, 2, partitions=4)
    await asyncio.sleep(5)
    assert counted_bytes(second) == counted_bytes(first) + (
        second.shards.shard(NEIGHBOUR).groups[NEIGHBOUR].stored.size((TOPIC, 3)) or 0
    )
    assert counted_bytes(second) >= await stored_bytes(brokers)


@scenario(offsets_commit_timeout_ms=1000)
async def test_a_commit_that_ends_half_way_says_what_is_stored(brokers: Brokers) -> None:
    broker = await brokers.start()
    assert await broker.commit(GROUP, 1, partitions=1) is ErrorCode.NONE
    with (
        brokers.store.hold("transact", keys.group_offset(GROUP, TOPIC, 300)),
        refused(ErrorCode.COORDINATOR_NOT_AVAILABLE) as problem,
    ):
        await broker.commit(GROUP, 2, partitions=400)
    assert isinstance(problem.value, PartlyCommittedError)
    stored = {(TOPIC, index) for index in range(2 * 127)}
    assert problem.value.stored == stored
    assert {key for key, offset in (await brokers.store.offsets(GROUP)).items() if offset == 2} >= stored


@pytest.mark.parametrize("is_seen", [True, False])
@scenario()
async def test_a_commit_means_the_topic_as_it_is_then(brokers: Brokers, is_seen: bool) -> None:
    """The view shows the topic that was deleted: the id that the commit came with is that one's."""
    broker = await brokers.start()
    await brokers.make_topic(TOPIC, UUID(int=2))
    if is_seen:
        await broker.tell_topics()
    assert await broker.commit(GROUP, 5, topic_id=TOPIC_ID) is ErrorCode.NONE
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 5}


@scenario()
async def test_a_topic_made_again_while_its_commit_is_on_the_way(brokers: Brokers) -> None:
    broker = await brokers.start()
    with brokers.store.hold("transact", keys.group_offsets(GROUP)) as hold:
        commits = [
            asyncio.create_task(broker.commit(group_id, 5, partitions=200)) for group_id in (GROUP, NEIGHBOUR)
        ]
        await hold.until_reached()
        await brokers.make_topic(TOPIC, UUID(int=2))
    assert [await commit for commit in commits] == [ErrorCode.NONE] * 2
    for group_id in (GROUP, NEIGHBOUR):
        assert await broker.fetch(group_id) == {(TOPIC, index): 5 for index in range(200)}


@scenario()
async def test_a_topic_whose_configs_change_disturbs_no_commit(brokers: Brokers) -> None:
    broker = await brokers.start()
    brokers.store.read.clear()
    for offset in range(3):
        await brokers.make_topic(TOPIC, TOPIC_ID)  # the same again, at another revision
        assert await broker.commit(GROUP, offset) is ErrorCode.NONE
    assert brokers.store.read == []
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 2}


@scenario()
async def test_a_topic_that_cannot_be_read_refuses_its_commits(brokers: Brokers) -> None:
    broker = await brokers.start()
    await MemoryStore.transact(brokers.store, [], [Put(keys.topic(TOPIC), b"broken")])
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await broker.commit(GROUP, 5)
    assert await brokers.store.offsets(GROUP) == {}
