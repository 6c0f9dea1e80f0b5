"""LeaveGroup, session expiry and lost connections over a raw connection."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_wire import (
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    RawGroup,
    leave,
    raw_group,
)
from tests.support.waiting import wait_until

SHORT_MS = 1_000  # long enough for a loaded machine to send a heartbeat within it, short enough to wait for


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


# --- leaving


def test_the_others_go_on_without_a_member_that_leaves(group: RawGroup) -> None:
    leader, leaving, staying = group.stable(3)
    assert leaving.leave() == NONE
    assert [leader.heartbeat(), staying.heartbeat()] == [REBALANCE_IN_PROGRESS] * 2
    assert leaving.heartbeat() == UNKNOWN_MEMBER_ID
    leader.send_join()
    staying.send_join()
    told = group.all_joined([leader, staying])[leader.id].members
    assert {one.member_id for one in told} == {leader.id, staying.id}


def test_when_the_leader_leaves_another_one_leads(group: RawGroup) -> None:
    leader, first, second = group.stable(3)
    assert leader.leave() == NONE
    first.send_join()
    second.send_join()
    replies = group.all_joined([first, second])
    new_leader = first if first.leads else second
    assert new_leader.leads
    assert {one.member_id for one in replies[new_leader.id].members} == {first.id, second.id}


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance"])
def test_when_the_last_member_leaves_the_group_is_empty(group: RawGroup, state: str) -> None:
    (member,) = group.joined(1)
    if state == "Stable":
        group.sync_together([member])
    assert group.describe().group_state == state
    assert member.leave() == NONE
    described = group.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "Empty",
        "consumer",
        "",
    )
    assert described.members == []


def test_leave_answers_waiting_joins_at_once(group: RawGroup) -> None:
    leader, leaving = group.stable(2)
    leader.send_join()
    group.await_state("PreparingRebalance")
    assert leaving.leave() == NONE
    assert [one.member_id for one in leader.joined().members] == [leader.id]


def test_a_member_that_leaves_while_it_waits_to_join_is_answered(group: RawGroup) -> None:
    leader, other = group.stable(2)
    leader.send_join()
    group.await_state("PreparingRebalance")
    reply = leave(group.wire, group.name, [(leader.id, None)])
    assert reply.members[0].error_code == NONE
    refused = leader.receive_join()
    assert (refused.error_code, refused.member_id) == (UNKNOWN_MEMBER_ID, "")
    assert [one.member_id for one in other.enter().members] == [other.id]


def test_leave_before_assignment_makes_others_rejoin(group: RawGroup) -> None:
    leader, waiting = group.joined(2)
    waiting.send_sync()
    assert leader.leave() == NONE
    assert waiting.receive_sync().error_code == REBALANCE_IN_PROGRESS
    assert [one.member_id for one in waiting.enter().members] == [waiting.id]


@pytest.mark.parametrize("version", range(6))
def test_who_is_not_there_cannot_leave(group: RawGroup, version: int) -> None:
    (member,) = group.stable(1)
    for name, member_id in ((group.name, "invented"), (group.name, ""), (f"{group.name}-absent", member.id)):
        reply = leave(group.wire, name, [(member_id, None)], version)
        if version < 3:
            assert reply.error_code == UNKNOWN_MEMBER_ID
        else:
            assert reply.error_code == NONE
            assert [(one.member_id, one.error_code) for one in reply.members] == [
                (member_id, UNKNOWN_MEMBER_ID)
            ]
    assert member.heartbeat() == NONE


def test_a_leave_without_members_changes_nothing(group: RawGroup) -> None:
    (member,) = group.stable(1)
    reply = leave(group.wire, group.name, [])
    assert (reply.error_code, list(reply.members)) == (NONE, [])
    assert member.heartbeat() == NONE


# --- sessions


def test_silent_member_is_removed_after_session_timeout(group: RawGroup) -> None:
    silent, other = group.member(session_timeout_ms=SHORT_MS), group.member()
    group.join_together([other, silent])
    group.sync_together([other, silent])
    wait_until(lambda: other.heartbeat() == REBALANCE_IN_PROGRESS, "the silent one is missed")
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID
    assert [one.member_id for one in other.enter().members] == [other.id]


def test_a_group_whose_members_are_all_silent_becomes_empty(group: RawGroup) -> None:
    group.stable(1, session_timeout_ms=SHORT_MS)
    assert group.await_state("Empty").members == []


def test_heartbeats_and_commits_keep_a_member_in(group: RawGroup, new_topic: NewTopic) -> None:
    topic = new_topic()
    beating, committing, silent = members = [group.member(session_timeout_ms=SHORT_MS) for _ in range(3)]
    group.join_together(members)
    group.sync_together(members)

    def silent_is_dropped() -> bool:
        assert beating.heartbeat() in (NONE, REBALANCE_IN_PROGRESS)
        assert committing.commit({(topic, 0): 1}) == {(topic, 0): NONE}
        return len(group.describe().members) == 2

    wait_until(silent_is_dropped, "the third member's session is over")
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID

    def beating_is_dropped() -> bool:  # now that it is silent, too
        assert committing.commit({(topic, 0): 2}) == {(topic, 0): NONE}
        return len(group.describe().members) == 1

    # A commit counts while a rebalance is prepared, too.
    assert group.describe().group_state == "PreparingRebalance"
    wait_until(beating_is_dropped, "the first member's session is over")
    assert committing.heartbeat() == REBALANCE_IN_PROGRESS


def test_a_lost_connection_does_not_end_the_membership(group: RawGroup) -> None:
    (member,) = group.stable(1)
    member.wire.close()
    member.wire = group.connection()
    assert member.heartbeat() == NONE
    assert bytes(member.sync().assignment) == member.id.encode()


def test_a_member_that_waits_to_join_needs_no_heartbeats(group: RawGroup) -> None:
    """Its session begins when it is answered."""
    (leader,) = group.stable(1)
    waiting = group.member(session_timeout_ms=SHORT_MS)
    waiting.start_join()
    group.await_state("PreparingRebalance")
    group.elapse(SHORT_MS)
    assert leader.heartbeat() == REBALANCE_IN_PROGRESS
    leader.send_join()
    assert len(group.all_joined([leader, waiting])[leader.id].members) == 2
    assert waiting.heartbeat() == NONE


def test_member_waiting_in_sync_needs_no_heartbeats(group: RawGroup) -> None:
    leader, waiting = group.member(), group.member(session_timeout_ms=SHORT_MS)
    group.join_together([leader, waiting])
    waiting.send_sync()
    group.elapse(SHORT_MS)
    assert leader.heartbeat() == NONE
    assert leader.sync({waiting.id: b"at last"}).error_code == NONE
    assert bytes(waiting.receive_sync().assignment) == b"at last"
    assert waiting.heartbeat() == NONE
