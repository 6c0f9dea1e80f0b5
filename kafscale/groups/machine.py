"""The state machine of a consumer group: which event does what in which state, and which states may follow.

Theory of operation. A driver (running_group.py) calls `apply` with one event after the other and carries out
the effects: it answers requests, stores records and reports the outcome (`Stored`, `StoreFailed`), and applies
`TimePassed` once `Group.next_deadline_ms` is reached. Nothing here waits, reads a clock or draws a random number.
Every request is answered exactly once: immediately, or, for a join and a sync, when the group completes that phase,
when the member is removed, or when the group is unloaded. What a client may act on after a crash of this broker (a
completed generation and its assignments, a static member's new id, the leave of the last members) is answered only
after the store has it.

`TABLE` is complete: docs/consumer-groups.md is drawn from it, and the property test walks it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafscale.groups.effects import Answer, Decided, Effect, Joined, Left, Synced
from kafscale.groups.events import (
    Commit,
    Event,
    Heartbeat,
    Join,
    Leave,
    Remove,
    Stored,
    StoreFailed,
    Sync,
    TimePassed,
    Unload,
)
from kafscale.groups.group import Group
from kafscale.groups.joining import join
from kafscale.groups.leaving import leave, time_passed, unload
from kafscale.groups.rebalancing import Effects
from kafscale.groups.states import GroupState
from kafscale.groups.syncing import answer_leaves, fail_leaves, store_failed, stored, sync
from kafscale.groups.validation import commit, heartbeat, refuse_removal, remove_empty
from kafscale.protocol.error_codes import ErrorCode

Action = Callable[[Group, Any, Effects], None]
"""Changes the group as the event requires, and adds the effects."""

_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the table. `to`: the states that the action may leave the group in. `meaning`: for the docs."""

    action: Action
    to: tuple[GroupState, ...]
    meaning: str


def ignore(group: Group, event: Event, out: Effects) -> None:
    """The event is too late to have an effect."""


def refuse_join(group: Group, event: Join, out: Effects) -> None:
    """The group is dead; the client looks for its coordinator again."""
    answer = Joined(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=event.member_id)
    out.append(Answer(event.reply_id, answer))


def refuse_sync(group: Group, event: Sync, out: Effects) -> None:
    """As `refuse_join`."""
    out.append(Answer(event.reply_id, Synced(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)))


def refuse_leave(group: Group, event: Leave, out: Effects) -> None:
    """As `refuse_join`."""
    out.append(Answer(event.reply_id, Left(ErrorCode.COORDINATOR_NOT_AVAILABLE)))


def refuse(group: Group, event: Heartbeat | Commit | Remove, out: Effects) -> None:
    """As `refuse_join`."""
    out.append(Answer(event.reply_id, Decided(ErrorCode.COORDINATOR_NOT_AVAILABLE)))


_GONE = "COORDINATOR_NOT_AVAILABLE: the group is being deleted, or was unloaded"
_LATE = "no effect: the group is dead"
_LEFT = "confirms the leave of the last members"
_LEFT_IN_DOUBT = "the leave of the last members fails"
_UNLOAD = Row(unload, (_DEAD,), "waiting requests get NOT_COORDINATOR")

TABLE: Final[Mapping[tuple[GroupState, type], Row]] = {
    (_EMPTY, Join): Row(
        join,
        (_EMPTY, _PREPARING),
        "the first member starts a rebalance, once it has joined with its member id",
    ),
    (_EMPTY, Sync): Row(sync, (_EMPTY,), "UNKNOWN_MEMBER_ID"),
    (_EMPTY, Heartbeat): Row(heartbeat, (_EMPTY,), "UNKNOWN_MEMBER_ID"),
    (_EMPTY, Leave): Row(leave, (_EMPTY,), "removes a pending member"),
    (_EMPTY, Commit): Row(commit, (_EMPTY,), "allowed to clients outside the group"),
    (_EMPTY, Remove): Row(remove_empty, (_DEAD,), "deletes the group"),
    (_EMPTY, TimePassed): Row(time_passed, (_EMPTY,), "removes pending members that did not join again"),
    (_EMPTY, Stored): Row(answer_leaves, (_EMPTY,), _LEFT),
    (_EMPTY, StoreFailed): Row(fail_leaves, (_EMPTY,), _LEFT_IN_DOUBT),
    (_EMPTY, Unload): _UNLOAD,
    (_PREPARING, Join): Row(
        join, (_PREPARING, _COMPLETING), "waits; the last missing member starts the generation"
    ),
    (_PREPARING, Sync): Row(sync, (_PREPARING,), "REBALANCE_IN_PROGRESS: join first"),
    (_PREPARING, Heartbeat): Row(heartbeat, (_PREPARING,), "REBALANCE_IN_PROGRESS; extends the session"),
    (_PREPARING, Leave): Row(
        leave, (_PREPARING, _COMPLETING, _EMPTY), "the rebalance waits for one member fewer"
    ),
    (_PREPARING, Commit): Row(
        commit,
        (_PREPARING,),
        "allowed to members of the last generation, and in a transaction to clients that name no member",
    ),
    (_PREPARING, Remove): Row(refuse_removal, (_PREPARING,), "NON_EMPTY_GROUP"),
    (_PREPARING, TimePassed): Row(
        time_passed,
        (_PREPARING, _COMPLETING, _EMPTY),
        "removes members that did not join in time and starts the generation with the others",
    ),
    (_PREPARING, Stored): Row(answer_leaves, (_PREPARING,), _LEFT),
    (_PREPARING, StoreFailed): Row(fail_leaves, (_PREPARING,), _LEFT_IN_DOUBT),
    (_PREPARING, Unload): _UNLOAD,
    (_COMPLETING, Join): Row(
        join,
        (_COMPLETING, _PREPARING),
        "a member with unchanged protocols gets this generation again; any other join starts a rebalance",
    ),
    (_COMPLETING, Sync): Row(sync, (_COMPLETING,), "waits for the assignment; the leader's sync stores it"),
    (_COMPLETING, Heartbeat): Row(heartbeat, (_COMPLETING,), "extends the session"),
    (_COMPLETING, Leave): Row(
        leave, (_COMPLETING, _PREPARING, _EMPTY), "starts a rebalance of the remaining members"
    ),
    (_COMPLETING, Commit): Row(
        commit, (_COMPLETING,), "REBALANCE_IN_PROGRESS, but in a transaction as in Stable"
    ),
    (_COMPLETING, Remove): Row(refuse_removal, (_COMPLETING,), "NON_EMPTY_GROUP"),
    (_COMPLETING, TimePassed): Row(
        time_passed,
        (_COMPLETING, _PREPARING, _EMPTY),
        "removes members that did not sync in time, or whose session has expired",
    ),
    (_COMPLETING, Stored): Row(stored, (_COMPLETING, _STABLE), "every member gets its assignment"),
    (_COMPLETING, StoreFailed): Row(
        store_failed, (_COMPLETING, _PREPARING), "waiting syncs get the error, and all members join again"
    ),
    (_COMPLETING, Unload): _UNLOAD,
    (_STABLE, Join): Row(
        join,
        (_STABLE, _PREPARING, _COMPLETING),
        "the leader, a new member or one with changed protocols starts a rebalance; a static member that "
        "returns does not, while the same protocol is selected",
    ),
    (_STABLE, Sync): Row(sync, (_STABLE,), "gets its assignment"),
    (_STABLE, Heartbeat): Row(heartbeat, (_STABLE,), "extends the session"),
    (_STABLE, Leave): Row(leave, (_STABLE, _PREPARING, _COMPLETING, _EMPTY), "starts a rebalance"),
    (_STABLE, Commit): Row(
        commit,
        (_STABLE,),
        "allowed to members of this generation, and in a transaction to clients that name no member",
    ),
    (_STABLE, Remove): Row(refuse_removal, (_STABLE,), "NON_EMPTY_GROUP"),
    (_STABLE, TimePassed): Row(
        time_passed, (_STABLE, _PREPARING, _COMPLETING, _EMPTY), "removes members whose session has expired"
    ),
    (_STABLE, Stored): Row(stored, (_STABLE,), "a static member that returned gets this generation"),
    (_STABLE, StoreFailed): Row(store_failed, (_STABLE,), "such a member gets the error"),
    (_STABLE, Unload): _UNLOAD,
    (_DEAD, Join): Row(refuse_join, (_DEAD,), _GONE),
    (_DEAD, Sync): Row(refuse_sync, (_DEAD,), _GONE),
    (_DEAD, Heartbeat): Row(refuse, (_DEAD,), _GONE),
    (_DEAD, Leave): Row(refuse_leave, (_DEAD,), _GONE),
    (_DEAD, Commit): Row(refuse, (_DEAD,), _GONE),
    (_DEAD, Remove): Row(refuse, (_DEAD,), _GONE),
    (_DEAD, TimePassed): Row(ignore, (_DEAD,), _LATE),
    (_DEAD, Stored): Row(answer_leaves, (_DEAD,), _LEFT),
    (_DEAD, StoreFailed): Row(fail_leaves, (_DEAD,), _LEFT_IN_DOUBT),
    (_DEAD, Unload): _UNLOAD,
}


def apply(group: Group, event: Event) -> list[Effect]:
    """Apply the event to the group and return what follows. Every state has a row for every event."""
    effects: list[Effect] = []
    TABLE[group.state, type(event)].action(group, event, effects)
    return effects
