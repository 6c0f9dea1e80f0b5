"""SyncGroup and Heartbeat over a raw connection: whose bytes reach whom, when, and who is refused."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.conftest import Peer
from tests.support.group_wire import (
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    RawGroup,
    raw_group,
)
from tests.support.waiting import wait_until

SHORT_MS = 1_500  # long enough for what is done within it, short enough to be waited for


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


# --- assignments


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_the_leaders_bytes_reach_each_member_unchanged(group: RawGroup, protocol_type: str) -> None:
    sizes = [0, 1, 255, 40_000]
    members = group.joined(len(sizes), protocol_type=protocol_type)
    assigned = {member.id: random.randbytes(size) for member, size in zip(members, sizes, strict=True)}
    leader, *others = members
    for other in others:
        other.send_sync()
    assert bytes(leader.sync(assigned).assignment) == assigned[leader.id]
    for other in others:
        reply = other.receive_sync()
        assert (reply.error_code, reply.protocol_type, reply.protocol_name) == (NONE, protocol_type, "range")
        assert bytes(reply.assignment) == assigned[other.id]
    described = group.describe()
    assert described.group_state == "Stable"
    assert {one.member_id: bytes(one.member_assignment) for one in described.members} == assigned


def test_a_member_that_the_leader_left_out_is_assigned_nothing(group: RawGroup) -> None:
    leader, other = group.joined(2)
    other.send_sync()
    # and an assignment for somebody who is not there goes to nobody
    reply = leader.sync({"somebody else": b"lost"})
    assert (reply.error_code, bytes(reply.assignment)) == (NONE, b"")
    reply = other.receive_sync()
    assert (reply.error_code, bytes(reply.assignment)) == (NONE, b"")
    assert {one.member_id for one in group.describe().members} == {leader.id, other.id}


def test_follower_waits_and_its_own_assignment_is_ignored(group: RawGroup) -> None:
    leader, other = group.joined(2)
    other.send_sync({leader.id: b"not yours", other.id: b"mine"})
    for _ in range(3):  # round trips in which a reply would have come
        assert leader.heartbeat() == NONE
        assert group.describe().group_state == "CompletingRebalance"
    assert not other.has_reply()
    assert bytes(leader.sync({leader.id: b"1", other.id: b"2"}).assignment) == b"1"
    assert bytes(other.receive_sync().assignment) == b"2"


def test_in_a_stable_group_every_sync_gives_the_same_assignment(group: RawGroup) -> None:
    leader, other = group.stable(2)
    # the leader cannot assign anew without a rebalance
    for assignments in ({}, {leader.id: b"new", other.id: b"new"}):
        reply = leader.sync(assignments)
        assert (reply.error_code, bytes(reply.assignment)) == (NONE, leader.id.encode())
        reply = other.sync(assignments)
        assert (reply.error_code, bytes(reply.assignment)) == (NONE, other.id.encode())


def test_late_sync_in_stable_group_gets_assignment(group: RawGroup) -> None:
    leader, late = group.joined(2)
    assert leader.sync({late.id: b"waits for you"}).error_code == NONE
    assert group.describe().group_state == "Stable"
    assert bytes(late.sync().assignment) == b"waits for you"


def test_an_assignment_does_not_outlive_its_generation(group: RawGroup) -> None:
    (leader,) = group.stable(1)
    leader.enter()
    assert bytes(leader.sync({}).assignment) == b""


# --- refused


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("difference", [-1, 1, -100])
def test_a_sync_of_another_generation_is_refused(group: RawGroup, when: str, difference: int) -> None:
    (member,) = group.joined(1)
    if when == "after":
        group.sync_together([member])
    reply = member.sync({member.id: b"stale"}, generation_id=member.generation + difference)
    assert (reply.error_code, bytes(reply.assignment)) == (ILLEGAL_GENERATION, b"")
    assert group.describe().group_state == ("CompletingRebalance" if when == "before" else "Stable")


def test_a_sync_of_an_unknown_member_is_refused(group: RawGroup) -> None:
    leader, other = group.joined(2)
    absent = f"{group.name}-absent"
    assert leader.sync({leader.id: b"x"}, member_id="invented").error_code == UNKNOWN_MEMBER_ID
    assert leader.sync({leader.id: b"x"}, member_id="").error_code == UNKNOWN_MEMBER_ID
    assert leader.sync({leader.id: b"x"}, group_id=absent).error_code == UNKNOWN_MEMBER_ID
    assert other.leave() == leader.leave() == NONE
    assert group.await_state("Empty").members == []
    assert leader.sync().error_code == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"protocol_type": "connect"}, id="another type"),
        pytest.param({"protocol_name": "sticky"}, id="another name"),
        pytest.param({"protocol_type": None}, id="no type"),
        pytest.param({"protocol_name": None}, id="no name"),
    ],
)
def test_sync_v5_must_name_the_generations_protocol(group: RawGroup, changes: dict[str, Any]) -> None:
    (member,) = group.joined(1, protocols={"range": b"", "sticky": b""})
    assert member.sync({member.id: b"x"}, **changes).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert bytes(member.sync({member.id: b"x"}).assignment) == b"x"
    assert member.sync(**changes).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(version=4, **changes).error_code == NONE


def test_sync_in_preparing_state_gets_rebalance_in_progress(group: RawGroup) -> None:
    leader, other = group.stable(2)
    leader.send_join()
    group.await_state("PreparingRebalance")
    reply = other.sync()
    assert (reply.error_code, bytes(reply.assignment)) == (REBALANCE_IN_PROGRESS, b"")


# --- members that never sync


def test_a_member_that_does_not_sync_in_time_is_dropped(group: RawGroup) -> None:
    leader, silent = group.joined(2, rebalance_timeout_ms=SHORT_MS)
    assert leader.sync({leader.id: b"x"}).error_code == NONE
    wait_until(lambda: leader.heartbeat() == REBALANCE_IN_PROGRESS, "the rebalance without the silent one")
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID
    assert silent.sync().error_code == UNKNOWN_MEMBER_ID
    assert [one.member_id for one in leader.enter().members] == [leader.id]


def test_leader_not_syncing_in_time_is_replaced(group: RawGroup) -> None:
    silent, waiting = group.joined(2, rebalance_timeout_ms=SHORT_MS)
    waiting.send_sync()
    assert waiting.receive_sync().error_code == REBALANCE_IN_PROGRESS
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID
    assert [one.member_id for one in waiting.enter().members] == [waiting.id]
    assert waiting.leads


# --- heartbeats


def test_a_heartbeat_returns_the_state_of_the_group(group: RawGroup) -> None:
    leader, other = group.joined(2)
    assert [leader.heartbeat(), other.heartbeat()] == [NONE, NONE]
    group.sync_together([leader, other])
    assert [leader.heartbeat(), other.heartbeat()] == [NONE, NONE]
    leader.send_join()
    group.await_state("PreparingRebalance")
    assert other.heartbeat() == REBALANCE_IN_PROGRESS
    assert other.heartbeat(generation=other.generation + 1) == ILLEGAL_GENERATION
    other.send_join()
    group.all_joined([leader, other])
    assert other.heartbeat(generation=other.generation - 1) == ILLEGAL_GENERATION
    assert other.heartbeat() == NONE


def test_a_heartbeat_of_an_unknown_member_is_refused(group: RawGroup) -> None:
    (member,) = group.stable(1)
    for stranger in (
        group.member(id="invented", generation=member.generation),
        group.member(id="", generation=member.generation),
        group.member(id="invented", generation=-1),
        group.member(group=f"{group.name}-absent", id=member.id, generation=member.generation),
        group.member(id=member.id, instance="never heard of", generation=member.generation),
    ):
        assert stranger.heartbeat() == UNKNOWN_MEMBER_ID
    pending = group.member()
    pending.register()
    assert pending.heartbeat() == UNKNOWN_MEMBER_ID
    assert member.leave() == NONE
    assert member.heartbeat() == UNKNOWN_MEMBER_ID
