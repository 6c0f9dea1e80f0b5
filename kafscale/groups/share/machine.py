"""The state machine of a share group of KIP-932: which event does what.

Theory of operation. It is that of a consumer group (`kafscale/groups/consumer/machine.py`) without what makes owners
of members: a change of members, subscriptions or topics raises the group epoch; that asks the driver for a target
assignment (`Assign`, answered by `Assigned`); each member takes its part over at its next heartbeat. Several members
may have a partition, and for some time one that is taken from a member may be read by it still.

A partition is assigned only after its start is in the metadata store: a target with a partition of which that is not
known is held until it is (`InitializeStarts`, answered by `StartsInitialized`).

Memory may be ahead of the metadata store: changes are stored in their order, without a time limit, and an answer
waits for all changes before it. If this broker is fenced, its memory of the group is thrown away, and with it only
what no member knows.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kafscale.groups.effects import Answer, Decided, Joined, Left, Synced
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
from kafscale.groups.modern.assignment import NO_PARTITIONS, difference, union
from kafscale.groups.modern.events import Assigned, Loaded, TopicsChanged
from kafscale.groups.modern.settling import ask_for_target, refuse, refuse_unstored, store_failed, stored
from kafscale.groups.share.effects import InitializeStarts
from kafscale.groups.share.events import ShareEvent, ShareHeartbeatReceived, StartsInitialized
from kafscale.groups.share.heartbeats import go_on, heartbeat
from kafscale.groups.share.settling import Effects, members_removed, raise_epoch, refusal_of, settle
from kafscale.groups.share.share_group import ShareGroup
from kafscale.protocol.error_codes import ErrorCode

Action = Callable[[ShareGroup, Any, Effects], None]

REFUSED_FOR_MS: Final = 60_000
"""Starts for which there was no room are asked for again after this time."""


def loaded(group: ShareGroup, event: Loaded, out: Effects) -> None:
    """Find out if the members have what they should have."""
    if group.members:
        ask_for_target(group, out)


def topics_changed(group: ShareGroup, event: TopicsChanged, out: Effects) -> None:
    """Partitions were added, or topics are other ones."""
    if group.is_assigning or group.topics is None:
        group.newer_topics = event.topics
    elif event.topics != group.topics:
        group.set_topics(event.topics)
        raise_epoch(group, event.now_ms)
        settle(group, (), out)


def assigned(group: ShareGroup, event: Assigned, out: Effects) -> None:
    """Take the target over once each of its partitions has a start."""
    if not group.members:
        # Starts may be deleted now: none is set for members that have left.
        _take_over(group, replace(event, target={}, topics={}), out)
        return
    of_members = NO_PARTITIONS
    for target in event.target.values():
        of_members = union(of_members, target)
    missing = difference(of_members, group.initialized)
    if missing:
        group.held, group.asked_starts = event, missing
        out.append(InitializeStarts(missing))
        return
    _take_over(group, event, out)


def starts_initialized(group: ShareGroup, event: StartsInitialized, out: Effects) -> None:
    """The target that was held is good; if starts were forgotten meanwhile they are asked for again.

    Partitions that have no room for a start are left out of it, and asked for again by a later heartbeat.
    """
    if group.asked_starts == event.partitions:
        group.initialized = union(group.initialized, difference(event.partitions, event.refused))
    group.asked_starts = NO_PARTITIONS
    if event.refused:
        group.ask_starts_again_ms = event.now_ms + REFUSED_FOR_MS
    held, group.held = group.held, None
    if held is not None:
        target = held.target
        if event.refused:
            target = {one: difference(partitions, event.refused) for one, partitions in target.items()}
        assigned(group, replace(held, now_ms=event.now_ms, target=target), out)


def _take_over(group: ShareGroup, event: Assigned, out: Effects) -> None:
    """Members get their part of the new target from here on; those that waited for it are answered."""
    group.is_assigning = False
    newer, group.newer_topics = group.newer_topics, None
    group.set_topics(event.topics)
    target = {one: event.target.get(one, group.target_of(one)) for one in group.members}
    if event.epoch > group.assignment_epoch:
        group.assignment_epoch, group.target = event.epoch, target
    elif target != group.target:
        # It was loaded, and something has changed since it was stored, or members were not there yet.
        raise_epoch(group, event.now_ms)
    if newer is not None and newer != event.topics:
        raise_epoch(group, event.now_ms)
    done = group.awaited_targets.take_through(group.assignment_epoch)
    if group.awaited_targets:
        ask_for_target(group, out)
    settle(group, [go_on(group, one) for one in done], out)


def time_passed(group: ShareGroup, event: TimePassed, out: Effects) -> None:
    """Remove members that were silent for too long."""
    before = len(group.members)
    for member_id in [one for one, at_ms in group.sessions.items() if at_ms <= event.now_ms]:
        if group.is_waiting(member_id):
            # It cannot be heard of meanwhile.
            group.set_session(member_id, event.now_ms + group.policy.session_timeout_ms)
        else:
            group.remove(member_id)
    group.find_deadline()
    if len(group.members) < before:
        members_removed(group, event.now_ms, out)
        settle(group, (), out)


def remove(group: ShareGroup, event: Remove, out: Effects) -> None:
    """Let an empty group die, so that no member can join before its record is deleted."""
    if group.members:
        out.append(Answer(event.reply_id, Decided(ErrorCode.NON_EMPTY_GROUP)))
        return
    # No heartbeat waits: it would be that of a member.
    group.is_dead = True
    out.append(Answer(event.reply_id, Decided(ErrorCode.NONE)))


def unload(group: ShareGroup, event: Unload, out: Effects) -> None:
    """Answer all that waits: clients look for the coordinator again."""
    refused = ErrorCode.NOT_COORDINATOR
    out.extend(refusal_of(one, refused) for one in group.awaited_targets.take_all())
    for answers in group.unstored_answers.values():
        refuse_unstored(answers, refused, out)
    group.unstored_answers = {}
    group.is_dead = True


# --- requests of other protocols


def commit(group: ShareGroup, event: Commit, out: Effects) -> None:
    """A share group has no committed offsets."""
    out.append(Answer(event.reply_id, Decided(ErrorCode.GROUP_ID_NOT_FOUND)))


def join(group: ShareGroup, event: Join, out: Effects) -> None:
    """A member of the classic protocol cannot join, even while the group is empty."""
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    out.append(Answer(event.reply_id, Joined(error_code=code, member_id=event.member_id)))


def sync(group: ShareGroup, event: Sync, out: Effects) -> None:
    """No member has joined by the classic protocol."""
    out.append(Answer(event.reply_id, Synced(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))


def classic_heartbeat(group: ShareGroup, event: Heartbeat, out: Effects) -> None:
    """As `sync`."""
    out.append(Answer(event.reply_id, Decided(ErrorCode.UNKNOWN_MEMBER_ID)))


def leave(group: ShareGroup, event: Leave, out: Effects) -> None:
    """As `sync`."""
    out.append(Answer(event.reply_id, Left(ErrorCode.UNKNOWN_MEMBER_ID)))


# --- a group that is deleted, or moved to another coordinator: clients look for it again

_GONE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


def refuse_member(group: ShareGroup, event: ShareHeartbeatReceived, out: Effects) -> None:
    """A member of the share group."""
    refuse(event.reply_id, _GONE, "", out)


def refuse_other(group: ShareGroup, event: Commit | Remove, out: Effects) -> None:
    """A commit, or another deletion."""
    out.append(Answer(event.reply_id, Decided(_GONE)))


TABLE: Final[Mapping[type, Action]] = {
    Loaded: loaded,
    ShareHeartbeatReceived: heartbeat,
    TopicsChanged: topics_changed,
    Assigned: assigned,
    StartsInitialized: starts_initialized,
    TimePassed: time_passed,
    Stored: stored,
    StoreFailed: store_failed,
    Unload: unload,
    Remove: remove,
    Commit: commit,
    Join: join,
    Sync: sync,
    Heartbeat: classic_heartbeat,
    Leave: leave,
}

DEAD_TABLE: Final[Mapping[type, Action]] = {
    # A leave may wait for its write when the group is deleted.
    Stored: stored,
    StoreFailed: store_failed,
    Unload: unload,
    ShareHeartbeatReceived: refuse_member,
    Remove: refuse_other,
    Commit: refuse_other,
    Join: join,
    Sync: sync,
    Heartbeat: classic_heartbeat,
    Leave: leave,
}
"""Of a group that is dead. What is not here comes too late."""


def apply(group: ShareGroup, event: Event | ShareEvent) -> Effects:
    """Apply the event to the group and return what follows."""
    effects: Effects = []
    action = DEAD_TABLE.get(type(event)) if group.is_dead else TABLE[type(event)]
    if action is not None:
        action(group, event, effects)
    return effects
