"""JoinGroup of dynamic members: who gets in, what a rebalance waits for, who leads, and what is followed."""

import pytest

from kafscale.groups.effects import JoinedMember
from kafscale.groups.events import Protocol
from kafscale.groups.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.table import (
    INITIAL_DELAY_MS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Table,
    protocols,
)

# Member ids (KIP-394)


def test_member_without_id_receives_one_and_must_join_again() -> None:
    table = Table()
    told = table.joined(table.join(new="a", required=True))
    assert (told.error_code, told.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a")
    assert table.is_in(GroupState.EMPTY) and not table.started
    assert table.waits(table.join("a", required=True))
    assert table.is_in(GroupState.PREPARING_REBALANCE) and list(table.group.members) == ["a"]


def test_clients_too_old_to_come_again_are_members_at_once() -> None:
    table = Table()
    assert table.waits(table.join(new="a", required=False))
    assert list(table.group.members) == ["a"]


def test_who_does_not_come_again_within_a_session_is_forgotten() -> None:
    table = Table()
    table.join(new="a", required=True)
    table.passes(SESSION_TIMEOUT_MS - 1)
    assert list(table.group.pending_members) == ["a"]
    table.passes(1)
    assert table.joined(table.join("a")).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_members_with_an_id_only() -> None:
    table = Table()
    table.preparing("a")
    table.join(new="b", required=True)
    a = table.join("a")
    assert table.waits(a)
    b = table.join("b", required=True)
    assert table.joined(a).generation == table.joined(b).generation == 2


def test_rebalance_continues_without_absent_pending_member() -> None:
    table = Table()
    table.preparing("a")
    table.join(new="b", required=True)
    a = table.join("a")
    table.passes(SESSION_TIMEOUT_MS)
    assert [one.member_id for one in table.joined(a).members] == ["a"]


def test_unknown_member_id_is_refused_in_every_state() -> None:
    for prepared in (Table.preparing, Table.completing, Table.stable):
        table = Table()
        assert table.joined(table.join("x")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
        prepared(table, "a")
        refused = table.joined(table.join("x"))
        assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "x")


# The first rebalance of an empty group


def test_the_first_rebalance_waits_for_the_initial_delay() -> None:
    table = Table()
    a = table.join(new="a")
    table.passes(INITIAL_DELAY_MS - 1)
    assert table.waits(a)
    table.passes(1)
    joined = table.joined(a)
    assert (joined.generation, joined.leader, joined.member_id) == (1, "a", "a")


def test_initial_delay_repeats_with_joins_to_rebalance_timeout() -> None:
    table = Table()
    replies = [table.join(new="0", rebalance_ms=10_000)]
    for number in range(1, 4):
        table.passes(2900)
        replies.append(table.join(new=str(number), rebalance_ms=10_000))
    table.passes(10_000 - table.now_ms - 1)
    assert table.waits(*replies)
    table.passes(1)
    assert len(table.joined(replies[0]).members) == 4


def test_a_delay_in_which_no_member_joins_is_the_last() -> None:
    table = Table()
    a = table.join(new="a")
    table.passes(INITIAL_DELAY_MS - 1)
    b = table.join(new="b")
    table.passes(INITIAL_DELAY_MS)
    assert table.waits(a, b)
    table.passes(1)
    assert len(table.joined(a).members) == 2


def test_without_an_initial_delay_no_member_waits_for_others() -> None:
    table = Table(initial_delay_ms=0)
    a, b = table.join(new="a"), table.join(new="b")
    table.passes(0)
    assert table.joined(a).generation == table.joined(b).generation == 1


def test_hundred_joining_members_need_one_rebalance() -> None:
    table = Table()
    replies = [table.join(new=f"m{number}") for number in range(100)]
    table.gathers()
    assert {table.joined(reply).generation for reply in replies} == {1}
    assert len(table.joined(replies[0]).members) == 100
    assert len(table.started) == 1


# Later rebalances


def test_new_member_starts_rebalance_that_all_joins_complete() -> None:
    table = Table()
    table.stable("a", "b")
    new = table.join(new="c")
    assert table.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    replies = [new, table.join("a")]
    assert table.waits(*replies)
    replies.append(table.join("b"))
    assert {table.joined(reply).generation for reply in replies} == {2}
    assert {table.joined(reply).leader for reply in replies} == {"a"}


def test_members_not_joining_in_rebalance_timeout_are_removed() -> None:
    table = Table()
    table.stable("a", session_ms=200_000, rebalance_ms=100_000)
    b = table.join(new="b", rebalance_ms=5000)
    table.passes(100_000 - 1)
    assert table.waits(b)
    table.passes(1)
    joined = table.joined(b)
    assert joined.leader == "b" and [one.member_id for one in joined.members] == ["b"]
    assert table.joined(table.join("a")).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_is_removed_after_waiting_five_minutes() -> None:
    table = Table()
    table.stable("a", session_ms=900_000, rebalance_ms=900_000)
    b = table.join(new="b", session_ms=6000)
    table.passes(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert table.waits(b)
    table.passes(1)
    assert table.joined(b).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(table.group.members) == ["a"]


def test_a_known_member_whose_join_waits_does_not_expire() -> None:
    table = Table()
    table.stable("a", "b")
    a = table.join("a")
    for _ in range(5):
        table.passes(SESSION_TIMEOUT_MS - 1)
        assert table.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    assert table.waits(a)
    table.join("b")
    assert table.joined(a).generation == 2


def test_a_join_that_is_repeated_ends_the_one_before() -> None:
    table = Table()
    table.preparing("a", "b")
    first = table.join("a")
    second = table.join("a")
    assert table.joined(first).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    table.join("b")
    assert table.joined(second).generation == 2


# Members that join again


def test_unchanged_follower_gets_current_generation() -> None:
    table = Table()
    table.stable("a", "b")
    joined = table.joined(table.join("b"))
    assert (joined.generation, joined.leader, joined.members) == (1, "a", ())
    assert table.is_in(GroupState.STABLE) and len(table.started) == 1


def test_unchanged_leader_joining_again_starts_rebalance() -> None:
    table = Table()
    table.stable("a", "b")
    assert table.waits(table.join("a"))
    assert table.is_in(GroupState.PREPARING_REBALANCE)


def test_a_follower_that_says_something_new_begins_a_rebalance() -> None:
    table = Table()
    table.stable("a", "b")
    assert table.waits(table.join("b", protocols=(Protocol("range", b"other topics"),)))
    a = table.join("a")
    assert [one.metadata for one in table.joined(a).members] == [b"topics", b"other topics"]


def test_completing_unchanged_join_gets_same_generation() -> None:
    table = Table()
    table.completing("a", "b")
    leader, follower = table.joined(table.join("a")), table.joined(table.join("b"))
    assert leader.generation == follower.generation == 1
    assert [one.member_id for one in leader.members] == ["a", "b"] and follower.members == ()
    assert table.is_in(GroupState.COMPLETING_REBALANCE)


def test_completing_changed_join_starts_rebalance() -> None:
    table = Table()
    table.completing("a", "b")
    waiting = table.sync("a", {"a": b"1", "b": b"2"})
    assert table.waits(table.join("b", protocols=protocols("roundrobin", "range")))
    assert table.synced(waiting).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    table.stored()
    assert table.is_in(GroupState.PREPARING_REBALANCE)


# The leader


def test_only_leader_gets_members_and_exact_metadata() -> None:
    table = Table()
    a = table.join(new="a", protocols=(Protocol("range", b"\x00\x01a\xff"), Protocol("sticky", b"owned")))
    b = table.join(new="b", protocols=(Protocol("range", b""),), instance="b-1")
    table.gathers()
    assert table.joined(a).members == (
        JoinedMember("a", None, b"\x00\x01a\xff"),
        JoinedMember("b", "b-1", b""),
    )
    assert table.joined(b).members == ()


def test_the_leader_stays_the_leader_in_any_order_of_joins() -> None:
    table = Table()
    table.stable("a", "b")
    table.join(new="c")
    table.join("b")
    assert table.joined(table.join("a")).leader == "a"


def test_another_member_leads_when_the_leader_has_left() -> None:
    table = Table()
    table.stable("a", "b", "c")
    table.leave("a")
    replies = [table.join("c"), table.join("b")]
    assert {table.joined(reply).leader for reply in replies} == {"b"}


def test_another_member_leads_when_the_leader_does_not_join() -> None:
    table = Table()
    table.stable("a", "b", "c")
    table.leave("b")
    c = table.join("c")
    table.passes(REBALANCE_TIMEOUT_MS)
    assert table.joined(c).leader == "c"


# What is followed


@pytest.mark.parametrize(
    ("preferences", "selected"),
    [
        ([("range", "roundrobin")], "range"),
        ([("range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range")], "roundrobin"),
        ([("range", "roundrobin"), ("range", "roundrobin"), ("roundrobin", "range")], "range"),
        ([("sticky", "range"), ("sticky", "range"), ("range",)], "range"),
        ([("x", "y", "z"), ("z", "y"), ("z", "y")], "z"),
    ],
)
def test_protocol_is_most_preferred_of_common_ones(preferences: list[tuple[str, ...]], selected: str) -> None:
    table = Table()
    replies = [
        table.join(new=str(number), protocols=protocols(*names)) for number, names in enumerate(preferences)
    ]
    table.gathers()
    assert {table.joined(reply).protocol_name for reply in replies} == {selected}
    assert {table.joined(reply).protocol_type for reply in replies} == {"consumer"}


def test_leader_gets_metadata_of_selected_protocol() -> None:
    table = Table()
    a = table.join(new="a", protocols=protocols("range", "roundrobin"))
    table.join(new="b", protocols=protocols("roundrobin"))
    table.gathers()
    assert [one.metadata for one in table.joined(a).members] == [b"roundrobin of mine"] * 2


def test_member_without_common_protocol_is_refused() -> None:
    table = Table()
    table.join(new="a", protocols=protocols("range", "roundrobin"))
    table.join(new="b", protocols=protocols("roundrobin"))
    refused = table.joined(table.join(new="c", protocols=protocols("range")))
    assert refused.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert table.waits(table.join(new="d", protocols=protocols("x", "roundrobin")))


def test_a_member_of_another_protocol_type_is_refused() -> None:
    table = Table()
    table.stable("a")
    refused = table.joined(table.join(new="b", protocol_type="connect"))
    assert refused.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_follows_nothing_is_refused() -> None:
    table = Table()
    for refused in (table.join(protocol_type=""), table.join(protocols=())):
        assert table.joined(refused).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_takes_another_protocol_type() -> None:
    table = Table()
    table.stable("a")
    table.leave("a")
    assert table.is_in(GroupState.EMPTY)
    b = table.join(new="b", protocol_type="connect", protocols=protocols("default"))
    table.gathers()
    assert (table.joined(b).protocol_type, table.joined(b).protocol_name) == ("connect", "default")


def test_members_can_go_over_to_another_protocol_one_by_one() -> None:
    table = Table()
    table.stable("a", "b")
    a = table.join("a", protocols=protocols("sticky", "range"))
    b = table.join("b", protocols=protocols("sticky", "range"))
    assert table.joined(a).protocol_name == table.joined(b).protocol_name == "sticky"
    table.complete()
    a = table.join("a", protocols=protocols("sticky"))
    table.join("b", protocols=protocols("sticky", "range"))
    assert table.joined(a).protocol_name == "sticky"
    refused = table.joined(table.join(new="c", protocols=protocols("range")))
    assert refused.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# How many


def test_a_full_group_takes_no_new_member() -> None:
    table = Table(max_size=2)
    first = [table.join(new="a"), table.join(new="b")]
    refused = table.joined(table.join(new="c"))
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    table.gathers()
    assert table.joined(table.join(new="c")).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    table.complete()
    assert table.joined(table.join(new="c")).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {table.joined(reply).generation for reply in first} == {1}
    assert table.is_in(GroupState.STABLE)


def test_a_member_with_an_id_only_takes_no_room() -> None:
    table = Table(max_size=1)
    table.join(new="a", required=True)
    table.join(new="b", required=True)
    assert table.waits(table.join("b"))
    assert table.joined(table.join("a")).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_in_a_rebalance_the_last_ones_to_join_find_no_room() -> None:
    table = Table(max_size=2)
    table.stable("a", "b")
    table.join("a")
    new = table.join(new="c")
    assert table.joined(table.join("b")).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "b" not in table.group.members
    table.passes(REBALANCE_TIMEOUT_MS)
    assert table.joined(new).generation == 2
