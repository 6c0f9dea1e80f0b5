"""Static members (KIP-345) on the machine: the table of scenarios, and what stores and exact times decide."""

import pytest

from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.machine_group import MachineGroup
from tests.groups.table import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Table
from tests.support.static_membership import SCENARIOS, Scenario


@pytest.mark.parametrize("play", SCENARIOS.values(), ids=SCENARIOS)
def test_static_membership(play: Scenario) -> None:
    play(MachineGroup())


# Its new id is not durable yet


def test_it_hears_nothing_before_its_new_id_is_stored() -> None:
    table = Table()
    table.stable("a", "static-b")
    assert table.waits(back := table.join(new="b2", instance="static-b"))
    table.stored(table.store_id - 1)
    assert table.waits(back)
    table.stored()
    assert table.joined(back).member_id == "b2"


def test_unstored_new_id_fails_join_and_rejoin_succeeds() -> None:
    table = Table()
    table.stable("a", "static-b")
    failed = table.join(new="b2", instance="static-b")
    table.store_fails()
    assert table.joined(failed).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    back = table.join(new="b3", instance="static-b")
    table.stored()
    assert table.joined(back).generation == 1
    assert table.is_in(GroupState.STABLE) and len(table.started) == 1


def test_one_that_comes_back_twice_fences_its_first_return() -> None:
    table = Table()
    table.stable("a", "static-b")
    first = table.join(new="b2", instance="static-b")
    first_store = table.store_id
    second = table.join(new="b3", instance="static-b")
    assert table.joined(first).error_code is ErrorCode.FENCED_INSTANCE_ID
    table.stored(first_store)
    assert table.waits(second)
    table.stored()
    assert table.joined(second).member_id == "b3"


def test_rebalance_includes_member_with_unstored_new_id() -> None:
    table = Table()
    table.stable("a", "static-b")
    back = table.join(new="b2", instance="static-b")
    table.leave("a")
    assert (table.joined(back).generation, table.joined(back).leader) == (2, "b2")


def test_return_before_assignment_starts_rebalance() -> None:
    table = Table()
    table.completing("a", "static-b")
    leader = table.sync("a", {"a": b"1", "static-b": b"2"})
    old = table.sync("static-b", instance="static-b")
    assert table.waits(table.join(new="b2", instance="static-b"))
    assert table.synced(leader).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert table.synced(old).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert table.is_in(GroupState.PREPARING_REBALANCE)


# Exact times


def test_its_session_begins_again_when_it_comes_back() -> None:
    table = Table()
    table.stable("a", "static-b")
    for _ in range(2):
        table.passes(SESSION_TIMEOUT_MS - 1)
        table.heartbeat("a")
        if table.group.static_members["static-b"] == "static-b":
            table.join(new="b2", instance="static-b")
            table.stored()
    assert set(table.group.members) == {"a", "b2"}
    table.passes(1)
    assert set(table.group.members) == {"a"}


def test_rebalance_waits_for_static_members_or_session_end() -> None:
    table = Table()
    table.stable("static-a", "static-b", "c", session_ms=200_000)
    table.leave("c")
    table.passes(2 * REBALANCE_TIMEOUT_MS)
    assert table.is_in(GroupState.PREPARING_REBALANCE) and table.group.generation == 1
    back = table.join(new="a2", instance="static-a", session_ms=200_000)
    table.passes(REBALANCE_TIMEOUT_MS)
    joined = table.joined(back)
    assert (joined.generation, joined.leader) == (2, "a2")
    assert {one.member_id for one in joined.members} == {"a2", "static-b"}


def test_a_group_of_static_members_that_all_died_becomes_empty() -> None:
    table = Table()
    table.stable("static-a", "static-b")
    table.passes(SESSION_TIMEOUT_MS)
    assert table.is_in(GroupState.EMPTY)
