"""The coordinator while the store is away or lies about outcomes, while it loads, is replaced, and stops."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from kafscale.groups.effects import Joined, Synced
from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    STRANGER,
    TOPIC,
    Brokers,
    Member,
    empty,
    joined,
    refused,
    scenario,
    stable,
)

TIMEOUT_SEC = 5.0
LOST = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

Result = TypeVar("Result")


def elapsed_sec() -> float:
    return asyncio.get_running_loop().time()


async def started(request: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """The request in progress, as far as it gets at once."""
    task = asyncio.create_task(request)
    await asyncio.sleep(0.001)
    assert not task.done()
    return task


# The store is away


@scenario(offsets_commit_timeout_ms=5000)
async def test_commit_waits_until_timeout_while_heartbeats_continue(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await stable(member)
    assert await member.commit(1) is ErrorCode.NONE
    brokers.store.is_away = True
    began_sec = elapsed_sec()
    commit = await started(member.commit(2))
    for _ in range(9):
        await asyncio.sleep(TIMEOUT_SEC / 10)
        assert not commit.done()
        assert member.heartbeat() is ErrorCode.NONE
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await commit
    assert elapsed_sec() - began_sec == pytest.approx(TIMEOUT_SEC, abs=0.1)
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await broker.fetch(GROUP)

    waiting = await started(member.commit(3))
    brokers.store.is_away = False
    assert await waiting is ErrorCode.NONE
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 3}
    assert member.heartbeat() is ErrorCode.NONE
    assert broker.is_in(GROUP, GroupState.STABLE)


@scenario()
async def test_a_first_commit_that_was_never_sent_leaves_no_group(brokers: Brokers) -> None:
    broker = await brokers.start()
    with brokers.store.hold("transact", keys.group_offsets(NEIGHBOUR)) as hold:
        neighbours = asyncio.create_task(broker.commit(NEIGHBOUR, 1))
        await hold.until_reached()
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await broker.commit(GROUP, 1)
        assert broker.coordinator.describe(GROUP) is None
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await neighbours
    await broker.shards.shard(GROUP).flush()
    assert await brokers.store.record(GROUP) is None
    assert await brokers.store.offsets(GROUP) == {}


@scenario()
async def test_late_first_commit_leaves_a_deletable_group(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    with (
        brokers.store.hold("transact", keys.group_offsets(GROUP)),
        refused(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ):
        await broker.commit(GROUP, 1)
    await broker.shards.shard(GROUP).flush()
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 1}
    assert broker.is_in(GROUP, GroupState.EMPTY)
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await brokers.store.group_keys() == []
    assert broker.totals == (0, 0, 0)


@scenario()
async def test_first_commit_of_gone_client_leaves_deletable_group(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    with brokers.store.hold("transact", keys.group_offsets(GROUP)) as hold:
        commit = asyncio.create_task(broker.commit(GROUP, 1))
        await hold.until_reached()
        commit.cancel()
        await asyncio.wait([commit])
    await broker.shards.shard(GROUP).flush()
    assert await brokers.store.offsets(GROUP) == {(TOPIC, 0): 1}
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await brokers.store.group_keys() == []


@scenario()
async def test_members_whose_assignments_cannot_be_stored_join_again(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP) for _ in range(3)]
    brokers.store.is_away = True
    await joined(*members)
    began_sec = elapsed_sec()
    answers = await asyncio.gather(*(member.sync() for member in members))
    assert {answer.error_code for answer in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert {answer.assignment for answer in answers} == {b""}
    assert elapsed_sec() - began_sec == pytest.approx(TIMEOUT_SEC, abs=0.1)
    assert {member.heartbeat() for member in members} == {ErrorCode.REBALANCE_IN_PROGRESS}
    brokers.store.is_away = False
    await stable(*members)
    assert [member.generation for member in members] == [2, 2, 2]
    record = await brokers.store.record(GROUP)
    assert record is not None
    assert record.generation == 2


@scenario()
async def test_late_first_generation_leaves_a_deletable_group(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await joined(member)
    with brokers.store.hold("transact", keys.GROUPS):
        assert (await member.sync()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await member.leave()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await broker.shards.shard(GROUP).flush()
    assert await brokers.store.record(GROUP) is not None
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await brokers.store.group_keys() == []


@scenario()
async def test_static_member_with_unstored_new_id_gets_error(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP, instance_id="one"), Member(broker, GROUP, instance_id="two")]
    await stable(*members)
    brokers.store.is_away = True
    again = Member(broker, GROUP, instance_id="two")
    assert (await again.join()).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    brokers.store.is_away = False
    assert (await again.join()).error_code is ErrorCode.NONE
    assert (await again.sync()).error_code is ErrorCode.NONE
    assert members[0].heartbeat() is again.heartbeat() is ErrorCode.NONE
    assert members[1].heartbeat() is ErrorCode.FENCED_INSTANCE_ID


# Deletions that fail half way


@pytest.mark.parametrize(("method", "prefix"), [("range", keys.GROUP_OFFSETS), ("transact", keys.GROUPS)])
@scenario()
async def test_group_survives_failed_deletion_and_can_be_deleted(
    brokers: Brokers, method: str, prefix: str
) -> None:
    broker = await brokers.start()
    await empty(broker, GROUP)
    await broker.commit(GROUP, 1, partitions=300)
    with brokers.store.hold(method, prefix) as hold:
        deletion = asyncio.create_task(broker.coordinator.delete(GROUP))
        await hold.until_reached()
        brokers.store.is_away = True
        hold.release()
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await deletion
    assert broker.is_in(GROUP, GroupState.EMPTY)
    assert broker.group(GROUP).generation == 2
    assert broker.totals[0] == 1
    brokers.store.is_away = False
    assert await broker.commit(GROUP, 2) is ErrorCode.NONE
    assert (await broker.fetch(GROUP))[TOPIC, 0] == 2
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await brokers.store.group_keys() == []
    assert broker.totals == (0, 0, 0)


@scenario()
async def test_commit_after_late_deletion_is_kept_with_its_group(brokers: Brokers) -> None:
    """The late deletion takes the group's record; offsets without one would never expire."""
    broker = await brokers.start()
    await broker.commit(GROUP, 1, partitions=2)
    with brokers.store.hold("transact", keys.GROUPS):
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await broker.coordinator.delete(GROUP)
        commit = await started(broker.commit(GROUP, 2))
    assert await commit is ErrorCode.NONE
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 2}
    assert await brokers.store.record(GROUP) is not None
    broker = await brokers.start()
    assert broker.is_in(GROUP, GroupState.EMPTY)
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert await brokers.store.group_keys() == []


@scenario()
async def test_failed_deletion_does_not_imply_a_stored_record(brokers: Brokers) -> None:
    broker = await brokers.start()
    brokers.store.is_away = True
    requests = [
        await started(broker.commit(NEIGHBOUR, 1)),
        await started(broker.commit(GROUP, 1)),
        await started(broker.coordinator.delete(GROUP)),
    ]
    for request in requests:
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await request
    brokers.store.is_away = False
    assert await broker.commit(GROUP, 2) is ErrorCode.NONE
    assert await brokers.store.record(GROUP) is not None


# Outcomes that are not known


@pytest.mark.parametrize(("requests", "answers"), [(1, 0), (0, 1), (3, 0), (1, 1)])
@scenario()
async def test_a_commit_whose_outcome_is_not_known_is_found_out(
    brokers: Brokers, requests: int, answers: int
) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    brokers.store.written.clear()
    brokers.store.lost_requests, brokers.store.lost_answers = requests, answers
    commits = [asyncio.create_task(broker.commit(GROUP, 2)), asyncio.create_task(broker.commit(GROUP, 3))]
    assert await asyncio.gather(*commits) == [ErrorCode.NONE] * 2
    assert len(brokers.store.written) <= 2
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 3}


@pytest.mark.parametrize("lost", ["request", "answer"])
@scenario()
async def test_fenced_coordinator_reports_only_durable_commits(brokers: Brokers, lost: str) -> None:
    before = await brokers.start()
    await before.commit(GROUP, 1)
    if lost == "request":
        brokers.store.lost_requests = 1
    else:
        brokers.store.lost_answers = 1
    with brokers.store.hold("get", keys.GROUP_SHARDS) as hold:
        commit = asyncio.create_task(before.commit(GROUP, 2))
        await hold.until_reached()
        after = await brokers.start()
    with refused(ErrorCode.NOT_COORDINATOR):
        await commit
    assert await after.fetch(GROUP) == {(TOPIC, 0): 1 if lost == "request" else 2}


@scenario()
async def test_late_commit_does_not_overwrite_a_later_one(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    with brokers.store.hold("transact", keys.group_offsets(GROUP)):
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await broker.commit(GROUP, 2)
        later = await started(broker.commit(GROUP, 3))
    assert await later is ErrorCode.NONE
    assert await broker.fetch(GROUP) == {(TOPIC, 0): 3}


# While groups are being loaded


@scenario()
async def test_loading_refuses_requests_and_accepts_heartbeats(brokers: Brokers) -> None:
    before = await brokers.start()
    member = Member(before, GROUP)
    await stable(member)
    member.broker = broker = await brokers.prepare()
    with refused(ErrorCode.NOT_COORDINATOR):
        member.heartbeat()
    with brokers.store.hold("range", keys.groups(keys.shard_of(GROUP))) as hold:
        claim = asyncio.create_task(broker.shards.claim(range(keys.GROUP_SHARD_COUNT)))
        await hold.until_reached()
        assert member.heartbeat() is ErrorCode.NONE
        for request in (
            member.join(),
            member.sync(),
            member.commit(1),
            member.leave(),
            broker.coordinator.delete(GROUP),
        ):
            with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                await request
        assert await broker.fetch(GROUP) == {}
        for ask in (
            lambda: broker.coordinator.describe(GROUP),
            lambda: list(broker.coordinator.groups()),
        ):
            with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                ask()
    await claim
    assert member.heartbeat() is ErrorCode.NONE
    assert await member.commit(1) is ErrorCode.NONE


@scenario()
async def test_a_start_waits_for_the_store(brokers: Brokers) -> None:
    before = await brokers.start()
    member = Member(before, GROUP, session_timeout_ms=300_000)
    await stable(member)
    broker = await brokers.prepare()
    brokers.store.is_away = True
    claim = await started(broker.shards.claim(range(keys.GROUP_SHARD_COUNT)))
    await asyncio.sleep(60)
    brokers.store.is_away = False
    with brokers.store.hold("range", keys.GROUPS) as hold:
        await hold.until_reached()
        brokers.store.is_away = True
        hold.release()
        await asyncio.sleep(60)
        assert not claim.done()
        brokers.store.is_away = False
    await asyncio.wait_for(claim, 10)
    assert broker.is_in(GROUP, GroupState.STABLE)
    member.broker = broker
    assert member.heartbeat() is ErrorCode.NONE


# After another broker took over, and at the end


async def _waiting(member_of_group: Member, member_of_neighbour: Member) -> list[asyncio.Task[Any]]:
    """One who waits for others to join, and one who waits for its leader."""
    others = Member(member_of_neighbour.broker, NEIGHBOUR)
    await stable(Member(member_of_group.broker, GROUP))
    await joined(others, member_of_neighbour)
    assert others.joined.members
    return [await started(member_of_group.join()), await started(member_of_neighbour.sync())]


@scenario()
async def test_waiters_at_fenced_coordinator_get_not_coordinator(brokers: Brokers) -> None:
    before = await brokers.start()
    member, other = Member(before, GROUP), Member(before, NEIGHBOUR)
    join, sync = await _waiting(member, other)
    after = await brokers.start()
    with refused(ErrorCode.NOT_COORDINATOR):
        await before.commit(STRANGER, 1)
    began_sec = elapsed_sec()
    assert (await join).error_code is ErrorCode.NOT_COORDINATOR
    assert (await sync).error_code is ErrorCode.NOT_COORDINATOR
    assert elapsed_sec() == began_sec
    for request in (member.join(), other.sync(), other.commit(1)):
        with refused(ErrorCode.NOT_COORDINATOR):
            await request
    with refused(ErrorCode.NOT_COORDINATOR):
        other.heartbeat()
    assert before.totals[:2] == (0, 0)
    assert await after.commit(STRANGER, 1) is ErrorCode.NONE
    assert await before.fetch(STRANGER) == await after.fetch(STRANGER) != {}


@scenario()
async def test_stopping_broker_redirects_clients_and_finishes_writes(brokers: Brokers) -> None:
    broker = await brokers.start()
    member, other = Member(broker, GROUP), Member(broker, NEIGHBOUR)
    join, sync = await _waiting(member, other)
    assert await broker.commit("outside", 1) is ErrorCode.NONE
    with brokers.store.hold("transact", keys.group_offsets("outside")) as hold:
        commit = asyncio.create_task(broker.commit("outside", 2))
        await hold.until_reached()
        broker.shards.refuse_requests()
        assert (await join).error_code is ErrorCode.NOT_COORDINATOR
        assert (await sync).error_code is ErrorCode.NOT_COORDINATOR
        with refused(ErrorCode.NOT_COORDINATOR):
            other.heartbeat()
        with refused(ErrorCode.NOT_COORDINATOR):
            await broker.commit("outside", 3)
        with refused(ErrorCode.NOT_COORDINATOR):
            list(broker.coordinator.groups())
        closing = await started(broker.shards.close())
    assert await commit is ErrorCode.NONE
    await closing
    assert await brokers.store.offsets("outside") == {(TOPIC, 0): 2}


@scenario(offsets_commit_timeout_ms=5000)
async def test_stop_is_bounded_while_store_is_unavailable(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    brokers.store.is_away = True
    commit = await started(broker.commit(GROUP, 2))
    began_sec = elapsed_sec()
    await broker.shards.close()
    assert elapsed_sec() - began_sec <= TIMEOUT_SEC + 0.1
    with pytest.raises(KafkaError) as problem:
        await commit
    assert problem.value.code in LOST


@scenario()
async def test_join_of_closed_connection_keeps_the_member(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    first = Member(broker, GROUP)
    await stable(first)
    second = Member(broker, GROUP)
    join: asyncio.Task[Joined] = await started(second.join())
    join.cancel()
    await asyncio.wait([join])
    assert len(broker.group(GROUP).members) == 2
    assert (await first.join()).generation == 2
    assert len(first.joined.members) == 2
    sync: asyncio.Task[Synced] = asyncio.create_task(first.sync())
    await asyncio.sleep(0)
    sync.cancel()
    await asyncio.wait([sync])
    await broker.shards.shard(GROUP).flush()
    assert broker.is_in(GROUP, GroupState.STABLE)
