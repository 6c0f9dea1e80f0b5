"""Groups that are deleted: what races with it, and what is left when it fails half way."""

import asyncio

from kafscale.metadata import keys
from kafscale.metadata.store import Delete
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    TOPIC,
    Brokers,
    Member,
    empty,
    refused,
    scenario,
    stable,
)


@scenario()
async def test_deleted_group_leaves_nothing_and_name_is_reusable(brokers: Brokers) -> None:
    broker = await brokers.start()
    await empty(broker, GROUP)
    await broker.commit(GROUP, 5, partitions=300)
    await broker.commit(NEIGHBOUR, 6)
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert set(await brokers.store.group_keys()) == {
        keys.group(NEIGHBOUR),
        keys.group_offset(NEIGHBOUR, TOPIC, 0),
    }
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        await broker.coordinator.delete(GROUP)
    member = Member(broker, GROUP)
    await stable(member)
    assert member.generation == 1
    assert await broker.fetch(GROUP) == {}


@scenario()
async def test_a_group_with_members_cannot_be_deleted(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await stable(member)
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NON_EMPTY_GROUP
    assert member.heartbeat() is ErrorCode.NONE
    assert await brokers.store.record(GROUP) is not None


@scenario()
async def test_deletion_takes_earlier_commits_and_refuses_later_ones(
    brokers: Brokers,
) -> None:
    """A commit that was acknowledged after the deletion has begun must not be deleted with the group."""
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    with brokers.store.hold("transact", keys.group_offsets(GROUP)) as hold:
        before = asyncio.create_task(broker.commit(GROUP, 2, partitions=2))
        await hold.until_reached()
        deletion = asyncio.create_task(broker.coordinator.delete(GROUP))
        await asyncio.sleep(1.0)
        assert await broker.commit(GROUP, 3) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await Member(broker, GROUP).join()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        with refused(ErrorCode.GROUP_ID_NOT_FOUND):
            await broker.coordinator.delete(GROUP)
        hold.release()
        assert await before is await deletion is ErrorCode.NONE
    assert await brokers.store.group_keys() == []
    assert await broker.commit(GROUP, 4) is ErrorCode.NONE
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 4}
    assert await brokers.store.record(GROUP) is not None


@scenario()
async def test_the_record_of_a_group_is_deleted_last(brokers: Brokers) -> None:
    """While it is there, whoever coordinates the group knows of the offsets that are still to go."""
    broker = await brokers.start()
    await broker.commit(GROUP, 1, partitions=300)
    brokers.store.written.clear()
    await broker.coordinator.delete(GROUP)
    deletions = [operation for written in brokers.store.written for operation in written]
    assert len(brokers.store.written) == 3
    assert deletions[-1] == Delete(keys.group(GROUP))
