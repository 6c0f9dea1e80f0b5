"""SyncGroup: assignments go out as the leader sent them, to the right generation, once they are durable."""

import pytest

from kafscale.formats.group_record import decode_group_record
from kafscale.groups.effects import Synced
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.table import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Table


def error_of(table: Table, reply_id: int) -> ErrorCode:
    return table.synced(reply_id).error_code


def test_followers_wait_for_the_leader_and_all_for_the_store() -> None:
    table = Table()
    table.completing("a", "b")
    follower = table.sync("b")
    leader = table.sync("a", {"a": b"\x00first\xff", "b": b"second"})
    assert table.waits(leader, follower)
    table.stored()
    assert table.synced(leader) == Synced(
        protocol_type="consumer", protocol_name="range", assignment=b"\x00first\xff"
    )
    assert table.synced(follower).assignment == b"second"
    assert table.is_in(GroupState.STABLE)


def test_what_is_stored_is_the_generation_with_its_assignments() -> None:
    table = Table()
    table.completing("a", "b")
    table.sync("a", {"a": b"first", "b": b"second"})
    record = decode_group_record("group", table.checked.stores[table.store_id])
    assert (record.generation, record.leader, record.protocol_name) == (1, "a", "range")
    assert [(one.member_id, one.assignment) for one in record.members] == [("a", b"first"), ("b", b"second")]


def test_who_syncs_later_gets_its_assignment_at_once() -> None:
    table = Table()
    table.completing("a", "b")
    table.sync("a", {"a": b"first", "b": b"second"})
    late = table.sync("b")
    assert table.waits(late)
    table.stored()
    again = table.sync("b")
    assert table.synced(late).assignment == table.synced(again).assignment == b"second"


def test_assignments_default_to_empty_and_ignore_unknown_ids() -> None:
    table = Table()
    table.completing("a", "b")
    follower = table.sync("b")
    table.sync("a", {"a": b"first", "stranger": b"x"})
    table.stored()
    assert table.synced(follower) == Synced(protocol_type="consumer", protocol_name="range", assignment=b"")


def test_what_a_follower_assigns_is_ignored() -> None:
    table = Table()
    table.completing("a", "b")
    follower = table.sync("b", {"b": b"everything"})
    assert table.checked.stores == {}
    table.sync("a", {"a": b"first", "b": b"second"})
    table.stored()
    assert table.synced(follower).assignment == b"second"


def test_a_leader_that_assigns_twice_is_held_to_the_first() -> None:
    table = Table()
    table.completing("a")
    first = table.sync("a", {"a": b"first"})
    second = table.sync("a", {"a": b"second"})
    assert error_of(table, first) is ErrorCode.REBALANCE_IN_PROGRESS
    table.stored()
    assert table.synced(second).assignment == b"first"


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_a_sync_of_another_generation_is_refused(generation: int) -> None:
    table = Table()
    table.completing("a")
    assert error_of(table, table.sync("a", generation=generation)) is ErrorCode.ILLEGAL_GENERATION
    table.complete()
    assert error_of(table, table.sync("a", generation=generation)) is ErrorCode.ILLEGAL_GENERATION


def test_a_sync_with_another_protocol_is_refused() -> None:
    table = Table()
    table.completing("a")
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(table, table.sync("a", protocol_type="connect")) is wrong
    assert error_of(table, table.sync("a", protocol_name="sticky")) is wrong
    assert table.waits(table.sync("a", protocol_type="consumer", protocol_name="range"))


def test_a_sync_of_a_member_of_no_group_is_refused() -> None:
    table = Table()
    assert error_of(table, table.sync("x")) is ErrorCode.UNKNOWN_MEMBER_ID
    table.stable("a")
    assert error_of(table, table.sync("x")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_during_a_rebalance_a_sync_hears_that_it_must_join() -> None:
    table = Table()
    table.preparing("a", "b")
    assert error_of(table, table.sync("a")) is ErrorCode.REBALANCE_IN_PROGRESS
    assert error_of(table, table.sync("a", generation=0)) is ErrorCode.ILLEGAL_GENERATION


# Who does not sync


def test_leader_not_syncing_in_rebalance_timeout_is_removed() -> None:
    table = Table()
    table.completing("a", "b", session_ms=200_000)
    waiting = table.sync("b")
    table.passes(REBALANCE_TIMEOUT_MS - 1)
    assert table.waits(waiting)
    table.passes(1)
    assert error_of(table, waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(table.group.members) == ["b"]
    assert table.joined(table.join("b")).leader == "b"


def test_follower_not_syncing_in_rebalance_timeout_is_removed() -> None:
    table = Table()
    table.completing("a", "b", session_ms=200_000)
    table.sync("a", {"a": b"first", "b": b"second"})
    table.stored()
    table.passes(REBALANCE_TIMEOUT_MS - 1)
    assert table.is_in(GroupState.STABLE)
    table.passes(1)
    assert list(table.group.members) == ["a"]
    assert table.is_in(GroupState.PREPARING_REBALANCE)


def test_when_all_have_synced_the_deadline_passes_unnoticed() -> None:
    table = Table()
    table.stable("a", "b", session_ms=200_000)
    table.passes(REBALANCE_TIMEOUT_MS)
    assert table.is_in(GroupState.STABLE) and len(table.group.members) == 2


def test_a_generation_without_syncs_ends_in_an_empty_group() -> None:
    table = Table()
    table.completing("a", "b", session_ms=200_000)
    table.passes(REBALANCE_TIMEOUT_MS)
    assert table.is_in(GroupState.EMPTY) and table.group.generation == 2


def test_a_member_whose_sync_waits_does_not_expire() -> None:
    table = Table()
    table.completing("a", "b")
    waiting = table.sync("b")
    for _ in range(4):
        table.passes(SESSION_TIMEOUT_MS - 1)
        assert table.heartbeat("a") is ErrorCode.NONE
    assert table.waits(waiting)
    table.sync("a", {"b": b"second"})
    table.stored()
    table.passes(SESSION_TIMEOUT_MS - 1)
    assert set(table.group.members) == {"a", "b"}


def test_session_end_before_assignment_starts_rebalance() -> None:
    table = Table()
    table.completing("a", "b")
    waiting = table.sync("b")
    table.passes(SESSION_TIMEOUT_MS)
    assert error_of(table, waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(table.group.members) == ["b"]


# What the store says


def test_unstored_assignments_fail_syncs_and_all_rejoin() -> None:
    table = Table()
    table.completing("a", "b")
    syncs = [table.sync("b"), table.sync("a", {"a": b"first", "b": b"second"})]
    table.store_fails(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert {error_of(table, one) for one in syncs} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert table.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    joins = [table.join("a"), table.join("b")]
    assert {table.joined(one).generation for one in joins} == {2}
    assert all(not one.assignment for one in table.group.members.values())


def test_generation_without_assignments_hides_earlier_ones() -> None:
    table = Table()
    table.stable("a")
    table.join("a")
    table.sync("a", {"a": b"new"})
    table.store_fails()
    assert table.group.members["a"].assignment == b""


def test_store_result_of_older_generation_is_ignored() -> None:
    table = Table()
    table.completing("a", "b")
    table.sync("a", {"a": b"old", "b": b"old"})
    old_store = table.store_id
    table.leave("b")
    table.join("a")
    waiting = table.sync("a", {"a": b"new"})
    table.stored(old_store)
    assert table.waits(waiting)
    table.stored()
    assert table.synced(waiting).assignment == b"new"


def test_rebalance_time_spans_first_join_to_assignments() -> None:
    table = Table()
    table.stable("a")
    table.completed.clear()
    table.join(new="b")
    table.passes(500)
    table.join("a")
    table.passes(250)
    table.complete()
    assert [one.duration_ms for one in table.completed] == [750]


def test_overtaken_rebalance_is_timed_from_the_first() -> None:
    table = Table()
    table.stable("a")
    table.completed.clear()
    table.join(new="b")
    table.passes(100)
    table.join("a")
    table.passes(100)
    table.leave("b")
    table.passes(100)
    assert table.joined(table.join("a")).generation == 3
    table.complete()
    assert [one.duration_ms for one in table.completed] == [300]
