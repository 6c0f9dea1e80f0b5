"""Static membership (KIP-345) over a raw connection: a member that comes back is known by its instance id."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_apis import committed
from tests.support.group_wire import (
    FENCED_INSTANCE_ID,
    INCONSISTENT_GROUP_PROTOCOL,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    RawGroup,
    leave,
    raw_group,
    subscription,
    unique_instance,
)
from tests.support.waiting import wait_until

SHORT_MS = 1_500  # long enough for what is done within it, short enough to be waited for


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


def static_members(group: RawGroup, count: int, **options: Any) -> list[Member]:
    """Static members in Stable, the leader first; each is assigned its first id, as bytes."""
    members = [group.member(instance=unique_instance(), **options) for _ in range(count)]
    group.join_together(members)
    group.sync_together(members)
    return members


def successor(group: RawGroup, member: Member, **options: Any) -> Member:
    """The same instance after a restart: it does not know its member id."""
    options.setdefault("protocols", member.protocols)
    return group.member(instance=member.instance, **options)


# --- coming back to a Stable group


@pytest.mark.parametrize("version", [5, 6, 7])
def test_returning_follower_gets_assignment_without_rebalance(group: RawGroup, version: int) -> None:
    leader, follower = static_members(group, 2)
    again = successor(group, follower)
    reply = again.join(version)
    assert (reply.error_code, reply.generation_id) == (NONE, follower.generation)
    assert (reply.leader, list(reply.members)) == (leader.id, [])
    assert reply.member_id not in (follower.id, leader.id)
    assert reply.protocol_name == "range"
    again.protocol_name = "range"
    assert bytes(again.sync().assignment) == follower.id.encode()
    assert [leader.heartbeat(), again.heartbeat()] == [NONE, NONE]
    described = group.describe()
    assert described.group_state == "Stable"
    assert {(one.group_instance_id, one.member_id) for one in described.members} == {
        (leader.instance, leader.id),
        (again.instance, again.id),
    }


def test_a_leader_that_comes_back_is_told_of_its_former_self(group: RawGroup) -> None:
    """Below version 9 it could not be told to skip the assignment, so it must not take itself for the leader."""
    leader, follower = static_members(group, 2)
    again = successor(group, leader)
    reply = again.join()
    assert (reply.error_code, reply.generation_id) == (NONE, leader.generation)
    assert (reply.leader, list(reply.members)) == (leader.id, [])
    assert bytes(again.sync().assignment) == leader.id.encode()
    # It does lead: a follower is told so, and when it joins again all do.
    assert follower.join().leader == again.id
    again.send_join()
    group.await_state("PreparingRebalance")
    follower.send_join()
    replies = group.all_joined([again, follower])
    assert replies[again.id].leader == again.id
    assert {one.member_id for one in replies[again.id].members} == {again.id, follower.id}


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment(group: RawGroup) -> None:
    """From version 9 on (KIP-814)."""
    leader, follower = static_members(group, 2)
    again = successor(group, leader)
    reply = again.join(9)
    assert (reply.error_code, reply.generation_id, reply.skip_assignment) == (NONE, leader.generation, True)
    assert reply.leader == reply.member_id
    assert {one.member_id for one in reply.members} == {again.id, follower.id}
    assert bytes(again.sync().assignment) == leader.id.encode()
    assert follower.heartbeat() == NONE


def test_return_with_new_metadata_needs_no_rebalance(group: RawGroup) -> None:
    leader, follower = static_members(group, 2)
    again = successor(group, follower, protocols={"range": subscription("other", user_data=b"new")})
    assert again.enter().generation_id == follower.generation
    assert leader.heartbeat() == NONE
    # the leader learns of it with the next generation
    leader.send_join()
    group.await_state("PreparingRebalance")
    again.send_join()
    told = group.all_joined([leader, again])[leader.id].members
    assert {one.group_instance_id: bytes(one.metadata) for one in told}[again.instance] == again.protocols[
        "range"
    ]


def test_return_with_another_protocol_causes_rebalance(group: RawGroup) -> None:
    both = {"range": b"r", "sticky": b"s"}
    leader, follower = static_members(group, 2, protocols=both)
    assert leader.protocol_name == "range"
    again = successor(group, follower, protocols={"sticky": b"s"})
    again.start_join()
    wait_until(lambda: leader.heartbeat() == REBALANCE_IN_PROGRESS, "the rebalance")
    leader.send_join()
    replies = group.all_joined([leader, again])
    assert {reply.protocol_name for reply in replies.values()} == {"sticky"}


def test_return_without_common_protocol_is_refused_unfenced(group: RawGroup) -> None:
    leader, follower = static_members(group, 2)
    again = successor(group, follower, protocols={"sticky": b""})
    assert again.join().error_code == INCONSISTENT_GROUP_PROTOCOL
    assert [leader.heartbeat(), follower.heartbeat()] == [NONE, NONE]


def test_an_assignment_survives_any_number_of_restarts(group: RawGroup) -> None:
    leader, follower = static_members(group, 2)
    ids = {follower.id}
    for _ in range(4):
        again = successor(group, follower)
        again.enter()
        ids.add(again.id)
        assert bytes(again.sync().assignment) == follower.id.encode()
    assert len(ids) == 5
    assert leader.heartbeat() == NONE


# --- the former self is fenced


def test_the_former_self_is_fenced_from_everything(group: RawGroup, new_topic: NewTopic) -> None:
    topic = new_topic()
    _, former = static_members(group, 2)
    again = successor(group, former)
    again.enter()
    assert former.heartbeat() == FENCED_INSTANCE_ID
    assert former.sync().error_code == FENCED_INSTANCE_ID
    assert former.leave() == FENCED_INSTANCE_ID
    assert former.commit({(topic, 0): 5}) == {(topic, 0): FENCED_INSTANCE_ID}
    refused = former.join()
    assert (refused.error_code, refused.member_id) == (FENCED_INSTANCE_ID, former.id)
    # without its instance id it is merely unknown
    former.instance = None
    assert former.heartbeat() == UNKNOWN_MEMBER_ID
    assert committed(group.wire, group.name) == {}
    assert again.commit({(topic, 0): 7}) == {(topic, 0): NONE}
    assert again.heartbeat() == NONE


def test_a_former_self_that_waits_to_join_is_fenced_at_once(group: RawGroup) -> None:
    leader, former = static_members(group, 2)
    leader.send_join()
    group.await_state("PreparingRebalance")
    third = group.member()
    third.register()  # so that the generation does not begin
    former.send_join()
    again = successor(group, former)
    again.send_join()
    refused = former.receive_join()
    assert (refused.error_code, refused.member_id, list(refused.members)) == (
        FENCED_INSTANCE_ID,
        former.id,
        [],
    )
    third.send_join()
    told = group.all_joined([leader, again, third])[leader.id].members
    assert {one.member_id for one in told} == {leader.id, again.id, third.id}


def test_former_self_waiting_in_sync_is_fenced_and_all_rejoin(group: RawGroup) -> None:
    leader, former, waiting = members = [group.member(instance=unique_instance()) for _ in range(3)]
    group.join_together(members)
    former.send_sync()
    waiting.send_sync()
    again = successor(group, former)
    again.send_join()
    assert former.receive_sync().error_code == FENCED_INSTANCE_ID
    assert waiting.receive_sync().error_code == REBALANCE_IN_PROGRESS
    assert leader.heartbeat() == REBALANCE_IN_PROGRESS
    leader.send_join()
    waiting.send_join()
    told = group.all_joined([leader, waiting, again])[leader.id].members
    assert {one.member_id for one in told} == {leader.id, waiting.id, again.id}


def test_an_instance_with_an_id_that_is_not_its_own_is_fenced(group: RawGroup) -> None:
    first, second = static_members(group, 2)
    wrong = group.member(instance=first.instance, id=second.id, generation=second.generation)
    assert wrong.join().error_code == FENCED_INSTANCE_ID
    assert wrong.heartbeat() == FENCED_INSTANCE_ID
    assert wrong.leave() == FENCED_INSTANCE_ID
    stranger = group.member(instance=unique_instance(), id=second.id, generation=second.generation)
    assert stranger.join().error_code == UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == UNKNOWN_MEMBER_ID
    assert [first.heartbeat(), second.heartbeat()] == [NONE, NONE]


# --- joining and leaving


def test_a_static_member_that_knows_its_id_joins_as_any_other(group: RawGroup) -> None:
    leader, follower = static_members(group, 2)
    assert follower.join().generation_id == follower.generation
    leader.send_join()
    group.await_state("PreparingRebalance")
    follower.send_join()
    told = group.all_joined([leader, follower])[leader.id].members
    assert {(one.member_id, one.group_instance_id) for one in told} == {
        (leader.id, leader.instance),
        (follower.id, follower.instance),
    }


def test_a_static_member_is_removed_by_its_instance_id_alone(group: RawGroup) -> None:
    """As an administrator does it (kafka-consumer-groups, removeMembersFromConsumerGroup)."""
    staying, removed = static_members(group, 2)
    reply = leave(group.wire, group.name, [("", removed.instance)])
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members] == [
        ("", removed.instance, NONE)
    ]
    assert removed.heartbeat() == UNKNOWN_MEMBER_ID
    assert [one.member_id for one in staying.enter().members] == [staying.id]
    again = successor(group, removed)  # its instance is not known any more
    again.start_join()
    wait_until(lambda: staying.heartbeat() == REBALANCE_IN_PROGRESS, "the rebalance")
    staying.send_join()
    group.all_joined([staying, again])


def test_one_instance_may_be_in_several_groups(group: RawGroup) -> None:
    (member,) = static_members(group, 1)
    with raw_group(group.broker) as other:
        same = other.member(instance=member.instance)
        same.enter()
        assert same.heartbeat() == NONE
    assert member.heartbeat() == NONE


# --- timeouts


def test_a_static_member_that_does_not_join_again_in_time_stays(group: RawGroup) -> None:
    """It may be restarting: only its session ends its membership."""
    leader, late = static_members(group, 2, rebalance_timeout_ms=SHORT_MS)
    leader.send_join()
    group.await_state("PreparingRebalance")
    told = leader.joined()
    assert {one.group_instance_id for one in told.members} == {leader.instance, late.instance}
    assert leader.sync({late.id: b"still yours"}).error_code == NONE
    again = successor(group, late)
    assert again.enter().generation_id == leader.generation
    assert bytes(again.sync().assignment) == b"still yours"


def test_silent_static_member_is_removed_after_session(group: RawGroup) -> None:
    silent = group.member(instance=unique_instance(), session_timeout_ms=SHORT_MS)
    leader = group.member(instance=unique_instance())
    group.join_together([leader, silent])
    group.sync_together([leader, silent])
    wait_until(lambda: leader.heartbeat() == REBALANCE_IN_PROGRESS, "the silent one is missed")
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID
    assert [one.member_id for one in leader.enter().members] == [leader.id]


def test_the_session_of_one_that_came_back_begins_anew(group: RawGroup) -> None:
    """The former self's session ends without effect. Its length holds until the first heartbeat."""
    former = group.member(instance=unique_instance(), session_timeout_ms=SHORT_MS)
    leader = group.member(instance=unique_instance())
    group.join_together([leader, former])
    group.sync_together([leader, former])
    again = successor(group, former, session_timeout_ms=60_000)
    again.enter()
    assert again.heartbeat() == NONE
    with raw_group(group.broker) as clock:  # whose only member's session began later and ends as late
        clock.stable(1, session_timeout_ms=SHORT_MS)
        clock.await_state("Empty")
    assert [leader.heartbeat(), again.heartbeat()] == [NONE, NONE]
