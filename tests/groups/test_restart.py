"""A coordinator that starts from a stored record: the group goes on as if nothing had happened."""

import pytest

from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.table import SESSION_TIMEOUT_MS, Table


def restart(table: Table, store_id: int | None = None) -> None:
    """Another coordinator has the group as it was stored, the last time unless another is given."""
    table.checked.restart(table.checked.stores[store_id or table.store_id], table.now_ms)


@pytest.fixture
def restarted() -> Table:
    """A stable group after its coordinator was replaced, a minute later."""
    table = Table()
    table.stable("a", "static-b")
    table.now_ms += 60_000
    restart(table)
    return table


def test_a_stable_group_goes_on_without_a_rebalance(restarted: Table) -> None:
    assert restarted.is_in(GroupState.STABLE)
    assert restarted.heartbeat("a") is restarted.commit("a", generation=1) is ErrorCode.NONE
    assert restarted.heartbeat("static-b", instance="static-b") is ErrorCode.NONE
    assert restarted.synced(restarted.sync("a")).assignment == b"part of a"
    assert restarted.group.leader == "a"


def test_members_have_a_whole_session_from_then_on(restarted: Table) -> None:
    restarted.passes(SESSION_TIMEOUT_MS - 1)
    assert len(restarted.group.members) == 2
    restarted.passes(1)
    assert restarted.is_in(GroupState.EMPTY)


def test_the_next_generation_has_the_next_number(restarted: Table) -> None:
    a, b = restarted.join("a"), restarted.join("static-b", instance="static-b")
    assert restarted.joined(a).generation == restarted.joined(b).generation == 2
    assert [one.metadata for one in restarted.joined(a).members] == [b"topics", b"topics"]


def test_a_static_member_comes_back_to_its_assignment(restarted: Table) -> None:
    back = restarted.join(new="b2", instance="static-b")
    restarted.stored()
    assert restarted.joined(back).generation == 1
    assert restarted.synced(restarted.sync("b2", instance="static-b")).assignment == b"part of static-b"


def test_what_members_follow_is_still_known(restarted: Table) -> None:
    refused = restarted.joined(restarted.join(new="c", protocol_type="connect"))
    assert refused.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_generation_that_was_not_stored_never_was() -> None:
    table = Table()
    table.stable("a")
    stored = table.store_id
    table.join(new="b")
    table.join("a")
    table.sync("a", {"a": b"new", "b": b"new"})
    restart(table, stored)
    assert table.heartbeat("a", generation=2) is ErrorCode.ILLEGAL_GENERATION
    assert table.heartbeat("b", generation=2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert table.synced(table.sync("a", generation=1)).assignment == b"part of a"


def test_empty_group_keeps_generation_and_empty_since() -> None:
    table = Table()
    table.stable("a")
    table.leave("a")
    since_ms = table.now_ms
    table.passes(5000)
    restart(table)
    assert table.is_in(GroupState.EMPTY) and table.group.next_deadline_ms() is None
    assert (table.group.generation, table.group.state_since_ms) == (2, since_ms)
    assert table.group.protocol_type == "consumer"
    a = table.join(new="a")
    table.gathers()
    assert table.joined(a).generation == 3
