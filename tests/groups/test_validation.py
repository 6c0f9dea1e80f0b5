"""Heartbeat and OffsetCommit: who may, in which state and with which generation."""

from collections.abc import Callable

import pytest

from kafscale.protocol.error_codes import ErrorCode
from tests.groups.table import Table

Prepare = Callable[..., None]

NONE = ErrorCode.NONE
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def empty(table: Table, *members: str) -> None:
    """These were members."""
    table.stable(*members)
    table.leave(*members)


@pytest.mark.parametrize(
    ("prepare", "of_member", "of_stranger"),
    [
        (empty, UNKNOWN, UNKNOWN),
        (Table.preparing, REBALANCE, UNKNOWN),
        (Table.completing, NONE, UNKNOWN),
        (Table.stable, NONE, UNKNOWN),
    ],
)
def test_heartbeats(prepare: Prepare, of_member: ErrorCode, of_stranger: ErrorCode) -> None:
    table = Table()
    prepare(table, "a", "b")
    assert table.heartbeat("a") is of_member
    assert table.heartbeat("stranger") is of_stranger


@pytest.mark.parametrize("prepare", [Table.preparing, Table.completing, Table.stable])
def test_a_heartbeat_of_another_generation_is_refused(prepare: Prepare) -> None:
    table = Table()
    prepare(table, "a", "b")
    for generation in (-1, table.group.generation - 1, table.group.generation + 1):
        assert table.heartbeat("a", generation=generation) is ILLEGAL


@pytest.mark.parametrize(
    ("prepare", "of_member", "of_older_generation", "of_stranger", "from_outside"),
    [
        (empty, UNKNOWN, UNKNOWN, UNKNOWN, NONE),
        (Table.preparing, NONE, ILLEGAL, UNKNOWN, UNKNOWN),
        (Table.completing, REBALANCE, ILLEGAL, UNKNOWN, UNKNOWN),
        (Table.stable, NONE, ILLEGAL, UNKNOWN, UNKNOWN),
    ],
)
def test_commits(
    prepare: Prepare,
    of_member: ErrorCode,
    of_older_generation: ErrorCode,
    of_stranger: ErrorCode,
    from_outside: ErrorCode,
) -> None:
    table = Table()
    prepare(table, "a", "b")
    assert table.commit("a") is of_member
    assert table.commit("a", generation=table.group.generation - 1) is of_older_generation
    assert table.commit("stranger") is of_stranger
    assert table.commit("", generation=-1) is from_outside


def test_never_joined_group_accepts_outside_commits() -> None:
    table = Table()
    assert table.commit("", generation=-1) is NONE
    assert table.commit("", generation=0) is UNKNOWN


def test_commit_without_generation_is_members_only() -> None:
    table = Table()
    table.stable("a")
    assert table.commit("a", generation=-1) is ILLEGAL
    assert table.commit("", generation=-1, instance="nobody") is UNKNOWN


def test_preparing_group_accepts_last_generations_commits() -> None:
    table = Table()
    table.preparing("a", "b")
    table.join("a")
    assert table.commit("a") is table.commit("b") is NONE
