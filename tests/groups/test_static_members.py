"""Static members (KIP-345): they come back as who they were, and there is one of each."""

import pytest

from kafscale.groups.events import LeavingMember, Protocol
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.table import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Table, protocols


def test_a_static_member_need_not_come_again_for_its_id() -> None:
    table = Table()
    assert table.waits(table.join(new="a", instance="one", required=True))
    assert table.group.static_members == {"one": "a"}


# It comes back to a stable group


def test_it_comes_back_to_its_assignment_without_a_rebalance() -> None:
    table = Table()
    table.stable("a", "static-b")
    back = table.join(new="b2", instance="static-b")
    table.stored()
    joined = table.joined(back)
    assert (joined.member_id, joined.generation, joined.leader) == ("b2", 1, "a")
    assert table.synced(table.sync("b2", instance="static-b")).assignment == b"part of static-b"
    assert table.heartbeat("a") is ErrorCode.NONE
    assert len(table.started) == 1


def test_it_hears_nothing_before_its_new_id_is_stored() -> None:
    table = Table()
    table.stable("a", "static-b")
    assert table.waits(back := table.join(new="b2", instance="static-b"))
    table.stored(table.store_id - 1)
    assert table.waits(back)
    table.stored()
    assert table.joined(back).member_id == "b2"


def test_returning_leader_gets_former_leader_and_assigns_nothing() -> None:
    table = Table()
    table.stable("static-a", "b")
    back = table.join(new="a2", instance="static-a")
    table.stored()
    assert (table.joined(back).leader, table.joined(back).members) == ("static-a", ())
    assert table.group.leader == "a2"
    assert table.synced(table.sync("a2", instance="static-a")).assignment == b"part of static-a"


def test_returning_leader_that_can_skip_keeps_leading() -> None:
    table = Table()
    table.stable("static-a", "b")
    back = table.join(new="a2", instance="static-a", can_skip=True)
    assert table.waits(back)
    table.stored()
    joined = table.joined(back)
    assert (joined.leader, joined.generation, joined.skip_assignment) == ("a2", 1, True)
    assert [member.member_id for member in joined.members] == ["b", "a2"]
    assert table.synced(table.sync("a2", instance="static-a")).assignment == b"part of static-a"


def test_a_follower_that_comes_back_has_no_assignment_to_skip() -> None:
    table = Table()
    table.stable("a", "static-b")
    back = table.join(new="b2", instance="static-b", can_skip=True)
    table.stored()
    joined = table.joined(back)
    assert (joined.leader, joined.members, joined.skip_assignment) == ("a", (), False)


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


def test_its_session_begins_anew_when_it_comes_back() -> None:
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


def test_return_with_other_selected_protocol_rebalances() -> None:
    table = Table()
    table.join(new="a", instance="one", protocols=protocols("range", "sticky"))
    table.gathers()
    table.complete()
    back = table.join(new="a2", instance="one", protocols=protocols("sticky", "range"))
    assert (table.joined(back).generation, table.joined(back).protocol_name) == (2, "sticky")


def test_return_with_new_metadata_does_not_rebalance() -> None:
    table = Table()
    table.stable("a", "static-b")
    back = table.join(new="b2", instance="static-b", protocols=(Protocol("range", b"other topics"),))
    table.stored()
    assert table.joined(back).generation == 1


def test_rebalance_includes_member_with_unstored_new_id() -> None:
    table = Table()
    table.stable("a", "static-b")
    back = table.join(new="b2", instance="static-b")
    table.leave("a")
    assert (table.joined(back).generation, table.joined(back).leader) == (2, "b2")


# It comes back during a rebalance


def test_in_a_rebalance_it_takes_its_own_place() -> None:
    table = Table()
    table.preparing("a", "static-b")
    old = table.join("static-b", instance="static-b")
    new = table.join(new="b2", instance="static-b")
    assert table.joined(old).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert table.waits(new)
    a = table.join("a")
    assert [one.member_id for one in table.joined(a).members] == ["a", "b2"]
    assert table.joined(new).generation == 2


def test_it_may_be_the_last_one_that_a_rebalance_waits_for() -> None:
    table = Table()
    table.preparing("a", "static-b")
    a = table.join("a")
    back = table.join(new="b2", instance="static-b")
    assert table.joined(a).generation == table.joined(back).generation == 2


def test_return_before_assignment_starts_rebalance() -> None:
    table = Table()
    table.completing("a", "static-b")
    leader = table.sync("a", {"a": b"1", "static-b": b"2"})
    old = table.sync("static-b", instance="static-b")
    assert table.waits(table.join(new="b2", instance="static-b"))
    assert table.synced(leader).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert table.synced(old).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert table.is_in(GroupState.PREPARING_REBALANCE)


# It does not come back


def test_absent_static_member_stays_in_next_generation() -> None:
    table = Table()
    table.stable("a", "static-b", session_ms=200_000)
    a = table.join("a", session_ms=200_000)
    table.passes(REBALANCE_TIMEOUT_MS)
    assert [one.member_id for one in table.joined(a).members] == ["a", "static-b"]


def test_a_static_leader_that_does_not_join_hands_the_lead_over() -> None:
    table = Table()
    table.stable("static-a", "b", session_ms=200_000)
    b = table.join("b", session_ms=200_000, protocols=(Protocol("range", b"other topics"),))
    table.passes(REBALANCE_TIMEOUT_MS)
    joined = table.joined(b)
    assert joined.leader == "b" and [one.member_id for one in joined.members] == ["static-a", "b"]


def test_it_is_gone_once_its_session_has_ended() -> None:
    table = Table()
    table.stable("a", "static-b")
    for _ in range(2):
        table.passes(SESSION_TIMEOUT_MS // 2)
        table.heartbeat("a")
    assert table.group.static_members == {}
    assert table.is_in(GroupState.PREPARING_REBALANCE)


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


# Two with one instance id


@pytest.fixture
def fenced() -> Table:
    """Another process has taken `static-b` over."""
    table = Table()
    table.stable("a", "static-b")
    table.join(new="b2", instance="static-b")
    table.stored()
    return table


def test_who_lost_the_instance_id_is_fenced_whatever_it_asks(fenced: Table) -> None:
    sync = fenced.sync("static-b", instance="static-b")
    join = fenced.join("static-b", instance="static-b")
    assert fenced.heartbeat("static-b", instance="static-b") is ErrorCode.FENCED_INSTANCE_ID
    assert fenced.commit("static-b", instance="static-b") is ErrorCode.FENCED_INSTANCE_ID
    assert fenced.synced(sync).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert fenced.joined(join).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert fenced.leave(LeavingMember("static-b", "static-b")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_former_owner_without_instance_id_is_unknown(fenced: Table) -> None:
    assert fenced.heartbeat("static-b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_took_the_instance_id_over_is_served(fenced: Table) -> None:
    assert fenced.heartbeat("b2", instance="static-b") is ErrorCode.NONE
    assert fenced.commit("b2", instance="static-b") is ErrorCode.NONE


def test_an_instance_id_that_nobody_has_makes_a_member_unknown(fenced: Table) -> None:
    assert fenced.heartbeat("b2", instance="c") is ErrorCode.UNKNOWN_MEMBER_ID
    assert fenced.joined(fenced.join("b2", instance="c")).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_one_that_is_fenced_does_not_hold_the_session_open(fenced: Table) -> None:
    for _ in range(2):
        fenced.passes(SESSION_TIMEOUT_MS // 2)
        fenced.heartbeat("a")
        fenced.heartbeat("static-b", instance="static-b")
    assert fenced.group.static_members == {}
