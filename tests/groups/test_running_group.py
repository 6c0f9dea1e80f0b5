"""Resources that groups take and return: memory, timers, tasks; and their clock."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from kafscale.formats.group_record import GroupRecord
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.effects import Downgraded
from kafscale.groups.effects import Synced
from kafscale.groups.events import Join, Protocol, Sync
from kafscale.groups.group import Group, GroupPolicy
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.effects import StoreChanges
from kafscale.groups.modern.events import Assigned
from kafscale.groups.request_limits import MAX_PROTOCOLS
from kafscale.groups.running_group import GroupHome, InStore, RunningGroup
from kafscale.groups.share.events import StartsInitialized
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.groups.totals import GroupTotals
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import (
    GROUP,
    NEIGHBOUR,
    RANGE,
    SESSION_TIMEOUT_MS,
    Brokers,
    Member,
    joined,
    now_ms,
    refused,
    scenario,
    stable,
)
from tests.support.virtual_time import run_virtually

MIB = 1024 * 1024
SESSION_SEC = SESSION_TIMEOUT_MS / 1000
NOTHING = (0, 0, 0)


def large(size_bytes: int) -> tuple[Protocol, ...]:
    return (Protocol("range", bytes(size_bytes)),)


# Groups that nobody needs


@scenario()
async def test_a_refused_first_join_leaves_nothing(brokers: Brokers) -> None:
    broker = await brokers.start()
    assert (await Member(broker, GROUP, protocols=()).join()).error_code is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert (await Member(broker, GROUP, protocol_type="").join()).error_code is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert broker.totals == NOTHING
    assert broker.coordinator.describe(GROUP) is None


@pytest.mark.parametrize("leaves", [True, False])
@scenario()
async def test_a_member_that_never_comes_again_leaves_nothing(brokers: Brokers, leaves: bool) -> None:
    broker = await brokers.start()
    first = Member(broker, GROUP, member_id_required=True)
    second = Member(broker, GROUP, member_id_required=True)
    for member in (first, second):
        assert (await member.join()).error_code is ErrorCode.MEMBER_ID_REQUIRED
        assert broker.totals[0] == 1
        await asyncio.sleep(SESSION_SEC / 2)
    if leaves:
        await second.leave()
    else:
        await asyncio.sleep(SESSION_SEC / 2 - 0.001)
        assert broker.is_in(GROUP, GroupState.EMPTY)
        await asyncio.sleep(0.001)
    assert broker.totals == NOTHING
    assert broker.coordinator.describe(GROUP) is None
    assert await brokers.store.group_keys() == []


@scenario()
async def test_thousands_of_groups_that_were_joined_once_leave_nothing(brokers: Brokers) -> None:
    broker = await brokers.start()
    brokers.store.written.clear()
    groups = []
    for number in range(2000):
        group_id = f"group-{number}"
        await Member(broker, group_id, member_id_required=True).join()
        running = broker.shards.group(group_id)
        assert running is not None
        groups.append(weakref.ref(running))
    del running
    assert broker.totals[0] == 2000
    await asyncio.sleep(SESSION_SEC)
    assert broker.totals == NOTHING
    assert list(broker.coordinator.groups()) == []
    gc.collect()
    assert [reference() for reference in groups if reference() is not None] == []
    assert brokers.store.written == []


@scenario()
async def test_a_group_of_which_something_is_stored_stays(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit(GROUP, 1)
    member = Member(broker, GROUP, member_id_required=True)
    await member.join()
    await member.leave()
    assert broker.is_in(GROUP, GroupState.EMPTY)


@scenario()
async def test_a_group_whose_first_commit_is_in_flight_stays(brokers: Brokers) -> None:
    broker = await brokers.start()
    brokers.store.is_away = True
    commit = asyncio.create_task(broker.commit(GROUP, 1))
    await asyncio.sleep(1)
    member = Member(broker, GROUP, member_id_required=True)
    await member.join()
    await member.leave()
    brokers.store.is_away = False
    assert await commit is ErrorCode.NONE
    assert broker.is_in(GROUP, GroupState.EMPTY)
    assert broker.totals[0] == 1


# Memory


@scenario(group_memory_bytes=MIB)
async def test_members_over_memory_limit_wait_for_others_to_leave(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP, protocols=large(100_000)) for _ in range(10)]
    await stable(*members)
    assert 1_000_000 < broker.totals[2] <= MIB
    for group_id in (GROUP, NEIGHBOUR):
        with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
            await Member(broker, group_id, protocols=large(100_000)).join()
    assert broker.totals[:2] == (1, 10)
    await stable(Member(broker, NEIGHBOUR))
    assert [member.heartbeat() for member in members] == [ErrorCode.NONE] * 10
    await stable(*members)  # Who is in may join again.
    members[0].protocols = large(200_000)
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        await members[0].join()
    await members.pop().leave()
    newcomer = Member(broker, GROUP, protocols=large(100_000))
    members[0].protocols = large(100_000)
    await asyncio.gather(joined(newcomer), joined(*members))


@scenario(group_memory_bytes=MIB)
async def test_assignments_count(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await joined(member)
    before = broker.totals[2]
    synced = await member.sync(bytes(MIB))
    assert broker.totals[2] == before + len(synced.assignment)
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        await Member(broker, NEIGHBOUR).join()
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        await broker.commit(NEIGHBOUR, 1)
    assert await member.commit(1) is ErrorCode.NONE
    assert broker.coordinator.describe(NEIGHBOUR) is None


@scenario(group_memory_bytes=MIB)
async def test_assignments_past_the_memory_for_groups_are_refused(brokers: Brokers) -> None:
    """They shrink to nothing in the store when they say the same again and again; not so in memory."""
    broker = await brokers.start()
    first, second = Member(broker, GROUP), Member(broker, NEIGHBOUR)
    await joined(first)
    await joined(second)
    assert (await first.sync(bytes(MIB))).error_code is ErrorCode.NONE
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        await second.sync(bytes(MIB))
    assert broker.totals[2] < 1.1 * MIB


@pytest.mark.parametrize("size", [100, 1000, 30_000])
@scenario()
async def test_long_texts_of_clients_count(brokers: Brokers, size: int) -> None:
    broker = await brokers.start()
    group_id, instance_id = "g" * size, "i" * size
    member = Member(broker, group_id, instance_id=instance_id)
    await stable(member)
    # The group's id, the member's, which begins with its instance's, and that one.
    assert broker.totals[2] > 3 * (size - 128)
    pending = Member(broker, group_id, member_id_required=True)
    before = broker.totals[2]
    await pending.join()
    assert before < broker.totals[2] < before + 500
    again = Member(broker, group_id, instance_id=instance_id)
    await stable(again)
    await again.leave()
    await asyncio.sleep(100)
    assert await broker.coordinator.delete(group_id) is ErrorCode.NONE
    assert broker.totals == NOTHING


@scenario()
async def test_empty_protocols_and_a_long_protocol_type_count(brokers: Brokers) -> None:
    broker = await brokers.start()
    protocols = tuple(Protocol(str(number), b"") for number in range(MAX_PROTOCOLS))
    member = Member(broker, GROUP, protocols=protocols, protocol_type="t" * 30_000)
    await stable(member)
    assert broker.totals[2] > MAX_PROTOCOLS * 200 + 29_000
    member.protocols = protocols[:1]
    await stable(member)
    assert 29_000 < broker.totals[2] < 34_000
    member.protocols = (*protocols, Protocol("one too many", b""))
    with refused(ErrorCode.INVALID_REQUEST):
        await member.join()


@scenario()
async def test_what_groups_take_is_counted_and_given_back(brokers: Brokers) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP, protocols=large(1000)) for _ in range(3)]
    static = Member(broker, GROUP, instance_id="static")
    await stable(static, *members)
    counted = broker.totals
    assert counted[:2] == (1, 4)
    assert broker.shards.totals.by_state[GroupState.STABLE] == 1
    await stable(Member(broker, GROUP, instance_id="static"))
    assert broker.totals[1] == 4
    for member in members:
        await member.leave()
    await asyncio.sleep(100)
    await broker.shards.shard(GROUP).flush()
    groups, left, memory_bytes = broker.totals
    assert (groups, left) == (1, 0)
    assert memory_bytes < 2000
    assert +broker.shards.totals.by_state == {GroupState.EMPTY: 1}
    assert await broker.coordinator.delete(GROUP) is ErrorCode.NONE
    assert broker.totals == NOTHING


@scenario()
async def test_a_broker_that_was_replaced_keeps_nothing(brokers: Brokers) -> None:
    before = await brokers.start()
    members = [Member(before, GROUP), Member(before, GROUP)]
    await stable(*members)
    running = before.shards.group(GROUP)
    assert running is not None
    reference = weakref.ref(running)
    del running
    after = await brokers.start()
    with refused(ErrorCode.NOT_COORDINATOR):
        await before.commit(NEIGHBOUR, 1)
    assert before.totals == NOTHING
    assert after.totals[:2] == (1, 2)
    await asyncio.sleep(0)
    gc.collect()
    assert reference() is None, "its timer is still set"


# Time


@scenario()
async def test_member_is_removed_exactly_at_session_end(brokers: Brokers) -> None:
    broker = await brokers.start()
    stays, goes = Member(broker, GROUP, session_timeout_ms=600_000), Member(broker, GROUP)
    await stable(stays, goes)
    for _ in range(5):
        await asyncio.sleep(SESSION_SEC - 0.001)
        assert goes.heartbeat() is ErrorCode.NONE
    await asyncio.sleep(SESSION_SEC - 0.001)
    assert broker.is_in(GROUP, GroupState.STABLE)
    await asyncio.sleep(0.001)
    assert broker.is_in(GROUP, GroupState.PREPARING_REBALANCE)
    assert goes.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stays.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


@scenario()
async def test_commits_keep_a_session(brokers: Brokers) -> None:
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await stable(member)
    for offset in range(5):
        await asyncio.sleep(SESSION_SEC - 0.001)
        assert await member.commit(offset) is ErrorCode.NONE
    assert broker.is_in(GROUP, GroupState.STABLE)


@scenario()
async def test_heartbeats_set_no_timers(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP) for _ in range(10)]
    await stable(*members)
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(at: float, *rest: Any, **given: Any) -> asyncio.TimerHandle:
        timers.append(at)
        return call_at(at, *rest, **given)

    monkeypatch.setattr(loop, "call_at", counted)
    for _ in range(100):
        for member in members:
            assert member.heartbeat() is ErrorCode.NONE
    assert timers == []
    for _ in range(10):
        await asyncio.sleep(SESSION_SEC / 2)
        for member in members:
            assert member.heartbeat() is ErrorCode.NONE
    assert len(timers) <= 10 + 11  # One of each sleep, and one of the group a session at most.


# Defects


async def _sync_when_storing_raises(problem: Exception) -> tuple[Synced, Group]:
    class Home(GroupHome):
        async def store_group(self, running: RunningGroup, record: GroupRecord) -> None:
            raise problem

        async def store_changes(self, running: RunningGroup, changes: StoreChanges) -> None:
            raise AssertionError("it is a classic group")

        async def store_downgraded(self, running: RunningGroup, downgraded: Downgraded) -> None:
            raise AssertionError("it is a classic group")

        async def assign(self, running: RunningGroup, group: ConsumerGroup | ShareGroup) -> Assigned:
            raise AssertionError("it is a classic group")

        async def initialize_starts(self, running: RunningGroup, partitions: Assignment) -> StartsInitialized:
            raise AssertionError("it is a classic group")

        def remove(self, running: RunningGroup) -> None:
            raise AssertionError("it is used")

    group = Group(GROUP, GroupPolicy(initial_rebalance_delay_ms=0, max_size=10), now_ms())
    running = RunningGroup(group, now_ms, Home(), GroupTotals(), Metrics().groups, in_store=InStore.NO)
    join = Join(
        now_ms=now_ms(),
        reply_id=running.next_reply_id(),
        member_id="",
        new_member_id="member",
        group_instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        protocol_type="consumer",
        protocols=RANGE,
        member_id_required=False,
    )
    await running.ask(join, join.reply_id)
    sync = Sync(
        now_ms=now_ms(),
        reply_id=running.next_reply_id(),
        member_id="member",
        group_instance_id=None,
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        assignments={"member": b"part"},
    )
    answer = await running.ask(sync, sync.reply_id)
    running.stop()
    assert isinstance(answer, Synced)
    return answer, group


def test_members_hear_of_a_defect_in_storing_their_group() -> None:
    async def play() -> None:
        answer, group = await _sync_when_storing_raises(RuntimeError("a defect"))
        assert answer == Synced(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        assert group.state is GroupState.PREPARING_REBALANCE

    run_virtually(asyncio.wait_for(play(), 60))
