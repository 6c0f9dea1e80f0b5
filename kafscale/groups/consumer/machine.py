"""The state machine of a consumer group of KIP-848: which event does what.

Theory of operation. As with classic groups (`kafscale/groups/machine.py`), a driver applies one event after the
other and carries out the effects. The state is derived from the epochs, so the table has a row for each event and no
columns: a group that is alive does the same in every state.

A change of members, subscriptions or topics raises the group epoch. That asks the driver for a target assignment
(`Assign`, answered by `Assigned`), towards which each member goes by its own heartbeats (`reconciling.py`): a
partition is given to a member only when no other has it, or may have it still.

Memory may be ahead of the metadata store: changes are stored in their order, without a time limit, and an answer
waits for all changes before it. If this broker is fenced, its memory of the group is thrown away, and with it only
what no member knows.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafscale.formats.consumer_member_record import MemberState
from kafscale.groups.consumer import classic_members, dead_group
from kafscale.groups.consumer.classic_joins import go_on_joining, join
from kafscale.groups.consumer.consumer_group import AwaitedTarget, ConsumerGroup
from kafscale.groups.consumer.downgrading import can_downgrade, classic_group, finish, members_removed
from kafscale.groups.consumer.events import ConsumerEvent, ConsumerHeartbeatReceived, Converted, RegexResolved
from kafscale.groups.consumer.heartbeats import go_on, heartbeat
from kafscale.groups.consumer.members import commit, remove
from kafscale.groups.consumer.settling import Effects, raise_epoch, refusal_of, settle
from kafscale.groups.effects import Answer
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
from kafscale.groups.modern.events import Assigned, Loaded, TopicsChanged
from kafscale.groups.modern.settling import ask_for_target, refuse_unstored, store_failed, stored
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode

Action = Callable[[ConsumerGroup, Any, Effects], None]


def regex_resolved(group: ConsumerGroup, event: RegexResolved, out: Effects) -> None:
    """Topics that match, or match no longer, change what members subscribe to."""
    if not group.uses_regex(event.regex) or group.resolved.get(event.regex) == event.topic_names:
        return
    group.set_resolved(event.regex, event.topic_names)
    if group.topics is not None or group.is_assigning:
        # What is being computed may not know of them.
        raise_epoch(group, "topics match a regular expression", event.now_ms, out)
        settle(group, (), event.now_ms, out)
    else:
        _compare(group, out)


def loaded(group: ConsumerGroup, event: Loaded, out: Effects) -> None:
    """Find out if the members have what they should have. Those that were to give up have their time again."""
    for member in group.members.values():
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            group.set_rebalance_deadline(member.member_id, event.now_ms + member.rebalance_timeout_ms)
    _compare(group, out)
    settle(group, (), event.now_ms, out)


def converted(group: ConsumerGroup, event: Converted, out: Effects) -> None:
    """Store the members of what was a classic group. They learn by their heartbeats if they are to join."""
    _compare(group, out)
    settle(group, event.answers, event.now_ms, out)


def _compare(group: ConsumerGroup, out: Effects) -> None:
    """Once all that the members subscribe to is known."""
    if group.members and not group.unresolved():
        ask_for_target(group, out)


def topics_changed(group: ConsumerGroup, event: TopicsChanged, out: Effects) -> None:
    """Partitions were added, or topics are other ones."""
    if group.is_assigning or group.topics is None:
        group.newer_topics = event.topics
    elif event.topics != group.topics:
        group.set_topics(event.topics)
        raise_epoch(group, "topics changed", event.now_ms, out)
        settle(group, (), event.now_ms, out)


def assigned(group: ConsumerGroup, event: Assigned, out: Effects) -> None:
    """Members go towards the new target from here on; those that waited for it take their first step."""
    group.is_assigning = False
    was_loaded, newer = group.topics is None, group.newer_topics
    group.set_topics(event.topics)
    group.newer_topics = None
    if was_loaded and can_downgrade(group):
        # The coordinator before has begun with it, or this one could not yet.
        group.successor = classic_group(group, event.now_ms)
        if group.successor is not None:
            finish(group, [], event.now_ms, out)
            return
    target = {one: event.target.get(one, group.target_of(one)) for one in group.members}
    if event.epoch > group.assignment_epoch:
        group.assignment_epoch, group.target = event.epoch, target
    elif target != group.target or group.state is not GroupState.STABLE:
        # It was loaded, and something has changed since it was stored, or members were not there yet.
        raise_epoch(group, "another coordinator", event.now_ms, out)
    if newer is not None and newer != event.topics:
        raise_epoch(group, "topics changed", event.now_ms, out)
    done = group.awaited_targets.take_through(group.assignment_epoch)
    if group.awaited_targets:
        ask_for_target(group, out)
    settle(group, [_go_on(group, one, event.now_ms) for one in done], event.now_ms, out)


def _go_on(group: ConsumerGroup, awaited: AwaitedTarget, now_ms: int) -> Answer:
    if isinstance(awaited.event, ConsumerHeartbeatReceived):
        return go_on(group, awaited)
    return go_on_joining(group, awaited, now_ms)


def time_passed(group: ConsumerGroup, event: TimePassed, out: Effects) -> None:
    """Remove members that were silent for too long, or did not give up in time what they were asked to."""
    now_ms, before = event.now_ms, len(group.members)
    silent = [one for one, at_ms in group.sessions.items() if at_ms <= now_ms]
    slow = [one for one, at_ms in group.rebalance_deadlines.items() if at_ms <= now_ms]
    for member_id in silent:
        if group.is_waiting(member_id):
            # It cannot be heard of meanwhile.
            group.set_session(member_id, now_ms + group.session_timeout_ms(group.members[member_id]))
        else:
            group.remove(member_id)
    for member_id in slow:
        if member_id in group.members:
            group.remove(member_id)
    group.find_deadline()
    if len(group.members) == before:
        return
    reason = "a member's session has ended" if silent else "a member did not give up its partitions in time"
    members_removed(group, reason, now_ms, out)
    finish(group, [], now_ms, out)


def unload(group: ConsumerGroup, event: Unload, out: Effects) -> None:
    """Answer all that waits: clients look for the coordinator again."""
    refused = ErrorCode.NOT_COORDINATOR
    out.extend(refusal_of(one, refused) for one in group.awaited_targets.take_all())
    for answers in group.unstored_answers.values():
        refuse_unstored(answers, refused, out)
    group.unstored_answers = {}
    group.is_dead = True


TABLE: Final[Mapping[type, Action]] = {
    Loaded: loaded,
    Converted: converted,
    ConsumerHeartbeatReceived: heartbeat,
    RegexResolved: regex_resolved,
    TopicsChanged: topics_changed,
    Assigned: assigned,
    TimePassed: time_passed,
    Stored: stored,
    StoreFailed: store_failed,
    Unload: unload,
    Commit: commit,
    Remove: remove,
    Join: join,
    Sync: classic_members.sync,
    Heartbeat: classic_members.heartbeat,
    Leave: classic_members.leave,
}


DEAD_TABLE: Final[Mapping[type, Action]] = {
    # A leave may wait for its write when the group is deleted.
    Stored: stored,
    StoreFailed: store_failed,
    Unload: unload,
    ConsumerHeartbeatReceived: dead_group.refuse_member,
    Commit: dead_group.refuse,
    Remove: dead_group.refuse,
    Heartbeat: dead_group.refuse,
    Join: dead_group.refuse_join,
    Sync: dead_group.refuse_sync,
    Leave: dead_group.refuse_leave,
}
"""Of a group that is dead. What is not here comes too late."""


def apply(group: ConsumerGroup, event: Event | ConsumerEvent) -> Effects:
    """Apply the event to the group and return what follows."""
    effects: Effects = []
    action = DEAD_TABLE.get(type(event)) if group.is_dead else TABLE[type(event)]
    if action is not None:
        action(group, event, effects)
    return effects
