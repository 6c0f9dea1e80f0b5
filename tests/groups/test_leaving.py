"""Members that go: by LeaveGroup, one or several, by the end of their session, and with the whole group."""

from collections.abc import Callable

import pytest

from kafscale.formats.group_record import decode_group_record
from kafscale.groups.events import LeavingMember
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.table import SESSION_TIMEOUT_MS, Table

# LeaveGroup


def test_the_others_join_again_when_a_member_leaves() -> None:
    table = Table()
    table.stable("a", "b")
    assert table.leave("b") == [ErrorCode.NONE]
    assert table.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert [one.member_id for one in table.joined(table.join("a")).members] == ["a"]


def test_the_last_member_leaves_an_empty_group_which_is_stored() -> None:
    table = Table()
    table.stable("a")
    table.leave("a")
    assert table.is_in(GroupState.EMPTY)
    record = decode_group_record("group", table.checked.stores[table.store_id])
    assert (record.generation, record.members, record.leader, record.protocol_name) == (2, (), None, None)
    assert (record.protocol_type, record.state_since_ms) == ("consumer", table.now_ms)


def test_a_rebalance_that_waited_for_who_leaves_goes_on() -> None:
    table = Table()
    table.preparing("a", "b")
    a = table.join("a")
    assert table.waits(a)
    table.leave("b")
    assert table.joined(a).generation == 2


def test_leave_does_not_shorten_the_initial_rebalance() -> None:
    table = Table()
    a, _ = table.join(new="a"), table.join(new="b")
    table.leave("b")
    assert table.waits(a)
    table.gathers()
    assert [one.member_id for one in table.joined(a).members] == ["a"]


def test_a_first_rebalance_that_all_leave_ends_in_an_empty_group() -> None:
    table = Table()
    a = table.join(new="a")
    table.leave("a")
    assert table.joined(a).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    table.gathers()
    assert table.is_in(GroupState.EMPTY)


def test_leave_before_assignment_starts_rebalance() -> None:
    table = Table()
    table.completing("a", "b")
    waiting = [table.sync("a", {"a": b"1", "b": b"2"}), table.sync("b")]
    table.leave("b")
    assert [table.synced(one).error_code for one in waiting] == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert table.joined(table.join("a")).generation == 2


def test_a_member_with_an_id_only_may_leave_instead() -> None:
    table = Table()
    table.preparing("a")
    table.join(new="b", required=True)
    a = table.join("a")
    assert table.leave("b") == [ErrorCode.NONE]
    assert table.joined(a).generation == 2


def test_batch_leave_starts_one_rebalance() -> None:
    table = Table()
    table.stable("a", "b", "static-c", "static-d")
    table.leave("b", LeavingMember("", "static-c"))
    assert set(table.group.members) == {"a", "static-d"}
    assert len(table.started) == 2


def test_leave_of_last_members_is_answered_once_stored() -> None:
    table = Table()
    table.stable("a", "b")
    leaving = table.send_leave("a", "b")
    assert table.is_in(GroupState.EMPTY) and table.waits(leaving)
    table.stored()
    assert [error_code for _, error_code in table.left(leaving).members] == [ErrorCode.NONE] * 2


def test_they_hear_the_error_when_it_could_not_be_stored_in_time() -> None:
    table = Table()
    table.stable("a")
    leaving = table.send_leave("a")
    table.store_fails()
    assert table.left(leaving).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_they_hear_of_it_though_another_has_joined_meanwhile() -> None:
    table = Table()
    table.stable("a")
    leaving = table.send_leave("a")
    left_with = table.store_id
    table.join(new="b")
    assert table.is_in(GroupState.PREPARING_REBALANCE) and table.waits(leaving)
    table.stored(left_with)
    assert [error_code for _, error_code in table.left(leaving).members] == [ErrorCode.NONE]


def test_leave_of_last_members_at_fenced_broker_redirects() -> None:
    table = Table()
    table.stable("a")
    leaving = table.send_leave("a")
    table.unload()
    assert table.left(leaving).error_code is ErrorCode.NOT_COORDINATOR


def test_a_leave_that_names_no_member_changes_nothing() -> None:
    table = Table()
    assert table.leave("stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    table.stable("a")
    assert table.leave("stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert table.leave() == [ErrorCode.NONE]
    assert table.is_in(GroupState.STABLE) and len(table.started) == 1


# The end of a session


def test_a_member_is_gone_when_it_was_not_heard_of_for_a_session() -> None:
    table = Table()
    table.stable("a", "b")
    table.passes(SESSION_TIMEOUT_MS - 1)
    assert table.heartbeat("a") is ErrorCode.NONE
    table.passes(1)
    assert list(table.group.members) == ["a"]
    assert table.is_in(GroupState.PREPARING_REBALANCE)
    assert table.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_each_member_has_the_session_timeout_that_it_asked_for() -> None:
    table = Table()
    table.join(new="a", session_ms=6000)
    table.join(new="b", session_ms=30_000)
    table.gathers()
    table.complete()
    table.passes(6000)
    assert list(table.group.members) == ["b"]


def test_rejoin_can_change_the_session_timeout() -> None:
    table = Table()
    table.stable("a", session_ms=10_000)
    table.join("a", session_ms=30_000)
    table.complete()
    table.passes(29_999)
    assert list(table.group.members) == ["a"]
    table.passes(1)
    assert table.is_in(GroupState.EMPTY)


def test_a_commit_says_that_a_member_lives() -> None:
    table = Table()
    table.stable("a")
    table.passes(SESSION_TIMEOUT_MS - 1)
    assert table.commit("a") is ErrorCode.NONE
    table.passes(SESSION_TIMEOUT_MS - 1)
    assert list(table.group.members) == ["a"]


def test_a_heartbeat_of_another_generation_does_not() -> None:
    table = Table()
    table.stable("a")
    table.passes(SESSION_TIMEOUT_MS - 1)
    table.heartbeat("a", generation=0)
    table.passes(1)
    assert table.is_in(GroupState.EMPTY)


def test_a_rebalance_does_not_wait_for_who_has_died() -> None:
    table = Table()
    table.stable("a", "b")
    a = table.join("a")
    table.passes(SESSION_TIMEOUT_MS)
    assert [one.member_id for one in table.joined(a).members] == ["a"]


def test_a_group_whose_members_all_died_becomes_empty() -> None:
    table = Table()
    table.stable("a", "b")
    table.passes(SESSION_TIMEOUT_MS)
    assert table.is_in(GroupState.EMPTY) and table.group.next_deadline_ms() is None
    assert decode_group_record("group", table.checked.stores[table.store_id]).members == ()


def test_a_stable_group_has_nothing_to_do_before_a_session_ends() -> None:
    table = Table()
    table.stable("a", session_ms=10_000, rebalance_ms=5000)
    table.passes(5000)
    table.heartbeat("a")
    assert table.group.next_deadline_ms() == table.now_ms + 10_000


# The whole group


def test_waiters_are_sent_to_the_new_coordinator() -> None:
    table = Table()
    table.preparing("a", "b")
    join = table.join("a")
    table.unload()
    assert table.joined(join).error_code is ErrorCode.NOT_COORDINATOR
    table = Table()
    table.completing("a", "b")
    sync = table.sync("b")
    table.unload()
    assert table.synced(sync).error_code is ErrorCode.NOT_COORDINATOR
    assert table.is_in(GroupState.DEAD)


def test_a_group_without_members_can_be_deleted() -> None:
    table = Table()
    table.stable("a")
    table.leave("a")
    assert table.remove() is ErrorCode.NONE
    assert table.is_in(GroupState.DEAD)


def test_a_group_that_expects_a_member_can_be_deleted() -> None:
    table = Table()
    table.join(new="a", required=True)
    assert table.remove() is ErrorCode.NONE


@pytest.mark.parametrize("prepare", [Table.preparing, Table.completing, Table.stable])
def test_a_group_with_members_cannot_be_deleted(prepare: Callable[..., None]) -> None:
    table = Table()
    prepare(table, "a")
    assert table.remove() is ErrorCode.NON_EMPTY_GROUP
    assert list(table.group.members) == ["a"]


def test_a_group_that_has_gone_sends_all_away() -> None:
    table = Table()
    table.unload()
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert table.joined(table.join(new="a")).error_code is gone
    assert table.synced(table.sync("a")).error_code is gone
    assert table.heartbeat("a") is table.commit("a") is table.remove() is gone
    assert table.leave() == [gone]
    table.unload()
    table.passes(1000)
    table.stored(1)
    assert table.is_in(GroupState.DEAD)
