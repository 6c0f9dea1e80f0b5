"""The course of a rebalance: start it, wait for the joins, start the next generation, hand out assignments.

It is that of Apache Kafka's classic groups (GroupMetadataManager), with two differences: a request that a later
one of its member replaces is answered, and so is the sync of a member that is removed.
"""

from collections.abc import Mapping

from kafscale.groups.effects import (
    Answer,
    Effect,
    Joined,
    JoinedMember,
    RebalanceCompleted,
    RebalanceStarted,
    Store,
    Synced,
)
from kafscale.groups.group import Group, Member
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode

Effects = list[Effect]
"""The list that an action appends to."""

# The least interval between two looks at absent static members, however short their rebalance timeouts are.
_LOOK_AGAIN_MS = 1000


def enter(group: Group, state: GroupState, now_ms: int) -> None:
    """Change the group's state."""
    group.state = state
    group.state_since_ms = now_ms


def extend_session(member: Member, now_ms: int) -> None:
    """Start the member's session timeout again."""
    member.expires_at_ms = now_ms + member.session_timeout_ms


def answer_join(member: Member, content: Joined, out: Effects) -> None:
    """Answer the member's waiting join, if there is one."""
    if member.awaiting_join is not None:
        out.append(Answer(member.awaiting_join, content))
        member.awaiting_join = None


def answer_sync(member: Member, content: Synced, out: Effects) -> None:
    """Answer the member's waiting sync, if there is one."""
    if member.awaiting_sync is not None:
        out.append(Answer(member.awaiting_sync, content))
        member.awaiting_sync = None


def await_join(member: Member, reply_id: int, out: Effects) -> None:
    """Let the join wait; an earlier one of this member, from a connection that it abandoned, is answered."""
    answer_join(member, Joined(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id), out)
    member.awaiting_join = reply_id


def await_sync(member: Member, reply_id: int, out: Effects) -> None:
    """Let the sync wait, as `await_join` does."""
    answer_sync(member, Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS), out)
    member.awaiting_sync = reply_id


def remove_member(group: Group, member_id: str, out: Effects) -> None:
    """Remove the member. Its waiting requests get UNKNOWN_MEMBER_ID: it must join as a new member."""
    member = group.remove(member_id)
    answer_join(member, Joined(error_code=ErrorCode.UNKNOWN_MEMBER_ID), out)
    answer_sync(member, Synced(error_code=ErrorCode.UNKNOWN_MEMBER_ID), out)


def prepare_rebalance(group: Group, reason: str, now_ms: int, out: Effects) -> None:
    """Wait for every member to join the next generation, which starts at once if all have."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)
    group.pending_syncs.clear()
    group.sync_deadline_ms = None
    group.assignments_to_store = None
    group.replacements_to_store.clear()
    group.is_initial_rebalance = group.state is GroupState.EMPTY
    if group.rebalance_since_ms is None:
        group.rebalance_since_ms = now_ms
    enter(group, GroupState.PREPARING_REBALANCE, now_ms)
    out.append(RebalanceStarted(reason))
    if group.is_initial_rebalance:
        delay_ms = group.policy.initial_rebalance_delay_ms
        group.member_added = False
        group.join_deadline_ms = now_ms + delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    elif group.all_joined:
        complete_join(group, now_ms, out)
    else:
        group.join_deadline_ms = now_ms + group.rebalance_timeout_ms


def rebalance_or_complete_join(group: Group, reason: str, now_ms: int, out: Effects) -> None:
    """Rebalance because the members or their protocols have changed."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(group, now_ms, out)
    else:
        prepare_rebalance(group, reason, now_ms, out)


def complete_join_if_all_joined(group: Group, now_ms: int, out: Effects) -> None:
    """Start the generation if all have joined; an initial rebalance waits on for members yet unknown."""
    if not group.is_initial_rebalance and group.all_joined:
        complete_join(group, now_ms, out)


def join_deadline_passed(group: Group, now_ms: int, out: Effects) -> None:
    """Start the generation without absent members; an initial rebalance waits on if a member was added."""
    delay_ms = min(group.policy.initial_rebalance_delay_ms, group.initial_remaining_ms)
    if group.is_initial_rebalance and group.member_added and delay_ms > 0:
        group.member_added = False
        group.initial_remaining_ms -= delay_ms
        group.join_deadline_ms = now_ms + delay_ms
    else:
        complete_join(group, now_ms, out)


def complete_join(group: Group, now_ms: int, out: Effects) -> None:
    """Remove the dynamic members that did not join, and start the next generation with the others."""
    group.join_deadline_ms = None
    absent = [member for member in group.members.values() if member.awaiting_join is None]
    for member in absent:
        if member.group_instance_id is None:
            remove_member(group, member.member_id, out)
    if not _elect_joined_leader(group):
        if group.members:
            # Static members only, none of which has joined: they join, or their sessions expire.
            group.join_deadline_ms = now_ms + max(group.rebalance_timeout_ms, _LOOK_AGAIN_MS)
            return
        _become_empty(group, now_ms, out)
        return
    group.is_initial_rebalance = False
    group.generation += 1
    group.protocol_name = group.select_protocol()
    enter(group, GroupState.COMPLETING_REBALANCE, now_ms)
    members_for_leader = group.members_for_leader()
    for member in group.members.values():
        is_leader = member.member_id == group.leader
        answer_join(member, current_generation(group, member, members_for_leader if is_leader else ()), out)
        extend_session(member, now_ms)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    group.sync_deadline_ms = now_ms + group.rebalance_timeout_ms


def current_generation(group: Group, member: Member, members: tuple[JoinedMember, ...] = ()) -> Joined:
    """The answer to a join with this generation. `members`: for its leader."""
    return Joined(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=members,
    )


def _elect_joined_leader(group: Group) -> bool:
    """Keep the leader if it has joined, else choose a member that has; False if there is none."""
    if group.leader is not None and group.members[group.leader].awaiting_join is not None:
        return True
    joined = next((one for one in group.members.values() if one.awaiting_join is not None), None)
    if joined is None:
        return False
    group.leader = joined.member_id
    return True


def _become_empty(group: Group, now_ms: int, out: Effects) -> None:
    group.is_initial_rebalance = False
    group.generation += 1
    group.protocol_name = None
    group.leader = None
    group.rebalance_since_ms = None
    enter(group, GroupState.EMPTY, now_ms)
    out.append(Store(group.next_store_id(), group.record()))


def reset_assignments(group: Group, error_code: ErrorCode, now_ms: int, out: Effects) -> None:
    """Clear the assignments of this generation; waiting syncs get `error_code`."""
    for member in group.members.values():
        group.set_assignment(member, b"")
        if member.awaiting_sync is not None:
            answer_sync(member, Synced(error_code=error_code), out)
            extend_session(member, now_ms)


def become_stable(group: Group, assignments: Mapping[str, bytes], now_ms: int, out: Effects) -> None:
    """Hand out the assignments, which are durable."""
    enter(group, GroupState.STABLE, now_ms)
    for member in group.members.values():
        group.set_assignment(member, assignments.get(member.member_id, b""))
        if member.awaiting_sync is not None:
            answer_sync(member, assignment_of(group, member), out)
            extend_session(member, now_ms)
    if group.rebalance_since_ms is not None:
        out.append(RebalanceCompleted(now_ms - group.rebalance_since_ms))
        group.rebalance_since_ms = None


def assignment_of(group: Group, member: Member) -> Synced:
    """The answer to a sync in a stable group."""
    return Synced(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
