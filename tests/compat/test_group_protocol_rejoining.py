"""JoinGroup of members that are in already, in each state of their group, and of those that come too late."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import Peer
from tests.support.group_wire import (
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    RawGroup,
    raw_group,
    subscription,
)
from tests.support.waiting import wait_until

SHORT_MS = 1_500  # long enough for what is done within it, short enough to be waited for
OTHER = {"range": subscription("another topic")}


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


# --- Stable


def test_new_member_makes_all_join_the_next_generation(group: RawGroup) -> None:
    members = group.stable(2)
    before = members[0].generation
    newcomer = group.member()
    newcomer.start_join()
    group.await_state("PreparingRebalance")
    assert [member.heartbeat() for member in members] == [REBALANCE_IN_PROGRESS] * 2
    assert not newcomer.has_reply()
    for member in members:
        member.send_join()
    replies = group.all_joined([*members, newcomer])
    assert {reply.generation_id for reply in replies.values()} == {before + 1}
    assert [member.heartbeat() for member in (*members, newcomer)] == [NONE] * 3


def test_stable_leader_joining_again_forces_rebalance(group: RawGroup) -> None:
    """So it does when the topics' partitions change, of which the metadata says nothing."""
    leader, follower = group.stable(2)
    leader.send_join()
    group.await_state("PreparingRebalance")
    assert follower.heartbeat() == REBALANCE_IN_PROGRESS
    follower.send_join()
    replies = group.all_joined([leader, follower])
    assert len(replies[leader.id].members) == 2
    assert leader.leads


def test_unchanged_stable_follower_gets_current_generation(
    group: RawGroup,
) -> None:
    leader, follower = group.stable(2)
    before = follower.generation
    reply = follower.join()
    assert (reply.error_code, reply.generation_id, reply.leader) == (NONE, before, leader.id)
    assert (reply.protocol_type, reply.protocol_name, list(reply.members)) == ("consumer", "range", [])
    assert bytes(follower.sync().assignment) == follower.id.encode()
    assert [leader.heartbeat(), follower.heartbeat()] == [NONE, NONE]
    assert group.describe().group_state == "Stable"


@pytest.mark.parametrize(
    "protocols",
    [
        pytest.param(OTHER, id="other metadata"),
        pytest.param({**OTHER, "sticky": b""}, id="one protocol more"),
        pytest.param({"sticky": b"", "range": subscription("topic")}, id="another one preferred"),
    ],
)
def test_changed_stable_follower_causes_rebalance(group: RawGroup, protocols: dict[str, bytes]) -> None:
    leader, follower = group.stable(2)
    follower.protocols = protocols
    follower.send_join()
    group.await_state("PreparingRebalance")
    assert leader.heartbeat() == REBALANCE_IN_PROGRESS
    leader.send_join()
    told = group.all_joined([leader, follower])[leader.id].members
    assert {one.member_id: bytes(one.metadata) for one in told} == {
        leader.id: leader.protocols["range"],
        follower.id: protocols["range"],
    }


# --- PreparingRebalance


def test_members_can_change_metadata_in_preparing_state(group: RawGroup) -> None:
    leader, changed, unchanged = members = group.stable(3)
    newcomer = group.member()
    newcomer.start_join()
    group.await_state("PreparingRebalance")
    changed.protocols = OTHER
    for member in members:
        member.send_join()
    told = group.all_joined([leader, changed, unchanged, newcomer])[leader.id].members
    assert {one.member_id: bytes(one.metadata) for one in told} == {
        member.id: member.protocols["range"] for member in (*members, newcomer)
    }


def test_a_join_sent_again_on_a_new_connection_is_answered_there(group: RawGroup) -> None:
    """A client does that whose own request timeout is shorter than the rebalance."""
    leader, follower = group.stable(2)
    follower.protocols = OTHER
    follower.send_join()
    group.await_state("PreparingRebalance")
    again = group.member(id=follower.id, protocols=OTHER)
    again.send_join()
    leader.send_join()
    assert len(leader.joined().members) == 2
    assert again.joined().generation_id == leader.generation
    assert again.heartbeat() == NONE


# --- CompletingRebalance


def test_rejoin_before_assignment_gets_same_generation(group: RawGroup) -> None:
    """A client does that which lost the first reply."""
    leader, follower = group.joined(2)
    before = leader.generation
    told = leader.join()
    assert (told.error_code, told.generation_id, told.leader) == (NONE, before, leader.id)
    assert {one.member_id for one in told.members} == {leader.id, follower.id}
    reply = follower.join()
    assert (reply.error_code, reply.generation_id, reply.leader) == (NONE, before, leader.id)
    assert list(reply.members) == []
    assert group.describe().group_state == "CompletingRebalance"
    group.sync_together([leader, follower])


@pytest.mark.parametrize("who", ["the leader", "a follower"])
def test_changed_join_before_assignment_starts_rebalance(group: RawGroup, who: str) -> None:
    leader, follower, waiting = group.joined(3)
    changing, other = (leader, follower) if who == "the leader" else (follower, leader)
    waiting.send_sync()
    changing.protocols = OTHER
    changing.send_join()
    assert waiting.receive_sync().error_code == REBALANCE_IN_PROGRESS
    assert other.sync({}).error_code == REBALANCE_IN_PROGRESS
    other.send_join()
    waiting.send_join()
    told = group.all_joined([leader, follower, waiting])[leader.id].members
    assert {one.member_id: bytes(one.metadata) for one in told}[changing.id] == OTHER["range"]


def test_a_new_member_before_the_assignment_begins_it_again(group: RawGroup) -> None:
    leader, waiting = group.joined(2)
    before = leader.generation
    waiting.send_sync()
    newcomer = group.member()
    newcomer.start_join()
    reply = waiting.receive_sync()
    assert (reply.error_code, bytes(reply.assignment)) == (REBALANCE_IN_PROGRESS, b"")
    waiting.send_join()
    leader.send_join()
    group.all_joined([leader, waiting, newcomer])
    assert newcomer.generation == before + 1
    group.sync_together([leader, waiting, newcomer])


# --- Empty


def test_a_group_that_was_left_goes_on_counting_its_generations(group: RawGroup) -> None:
    (member,) = group.stable(1)
    assert (member.generation, member.leave()) == (1, NONE)
    assert group.await_state("Empty").protocol_type == "consumer"
    again = group.member()
    again.enter()
    assert again.generation == 3  # the empty group was generation 2
    # and it may speak other protocols than those before it
    assert again.leave() == NONE
    other = group.member(protocol_type="connect", protocols={"eager": b""})
    assert other.enter().protocol_type == "connect"


def test_a_member_of_a_group_that_has_become_empty_is_unknown(group: RawGroup) -> None:
    (member,) = group.stable(1)
    assert member.leave() == NONE
    assert member.join().error_code == UNKNOWN_MEMBER_ID


# --- those who come too late


def test_a_member_that_does_not_join_again_in_time_is_dropped(group: RawGroup) -> None:
    leader, late = group.stable(2, rebalance_timeout_ms=SHORT_MS)
    leader.send_join()
    group.await_state("PreparingRebalance")
    told = leader.joined()
    assert [one.member_id for one in told.members] == [leader.id]
    assert late.heartbeat() == UNKNOWN_MEMBER_ID
    assert late.join().error_code == UNKNOWN_MEMBER_ID
    assert leader.sync({leader.id: b"all"}).error_code == NONE


def test_when_the_leader_comes_too_late_another_one_leads(group: RawGroup) -> None:
    late, follower = group.stable(2, rebalance_timeout_ms=SHORT_MS)
    follower.protocols = OTHER
    follower.send_join()
    told = follower.joined()
    assert follower.leads
    assert [one.member_id for one in told.members] == [follower.id]
    assert late.heartbeat() == UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_of_the_members_holds(group: RawGroup) -> None:
    hurried, patient = group.member(rebalance_timeout_ms=1), group.member()
    group.join_together([patient, hurried])
    group.sync_together([patient, hurried])
    hurried.protocols = OTHER
    hurried.send_join()
    group.await_state("PreparingRebalance")
    assert patient.heartbeat() == REBALANCE_IN_PROGRESS
    patient.send_join()
    assert len(group.all_joined([patient, hurried])[patient.id].members) == 2


def test_join_v0_uses_session_timeout_for_rebalance(group: RawGroup) -> None:
    leader, late = group.stable(2, session_timeout_ms=SHORT_MS)
    for member in (leader, late):  # joins without a rebalance timeout, with version 0
        member.protocols = OTHER
    late.send_join(version=0)
    leader.send_join(version=0)
    assert [leader.receive_join(0).error_code, late.receive_join(0).error_code] == [NONE, NONE]
    group.sync_together([leader, late])
    leader.send_join(version=0)
    # it lives, and yet is not waited for any longer
    wait_until(lambda: late.heartbeat() == UNKNOWN_MEMBER_ID, "the late member is dropped")
    assert [one.member_id for one in leader.receive_join(0).members] == [leader.id]
