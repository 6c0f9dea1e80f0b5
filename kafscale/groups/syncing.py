"""SyncGroup and the outcome of stores: assignments are handed out once they are durable."""

from dataclasses import replace

from kafscale.groups.effects import Answer, Joined, Left, Store, Synced
from kafscale.groups.events import NO_MEMBER_ID, Stored, StoreFailed, Sync
from kafscale.groups.group import Group, Member, Replacement
from kafscale.groups.rebalancing import (
    Effects,
    answer_join,
    assignment_of,
    await_sync,
    become_stable,
    current_generation,
    prepare_rebalance,
    reset_assignments,
)
from kafscale.groups.states import GroupState
from kafscale.groups.validation import member_error
from kafscale.protocol.error_codes import ErrorCode


def _sync_error(group: Group, event: Sync) -> ErrorCode:
    error_code = member_error(group, event.member_id, event.group_instance_id)
    if error_code is not ErrorCode.NONE:
        return error_code
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if event.protocol_type not in (None, group.protocol_type) or event.protocol_name not in (
        None,
        group.protocol_name,
    ):
        if group.state is GroupState.PREPARING_REBALANCE and group.protocol_name is None:
            # It was a consumer group, where each member has a protocol of its own. There is to be one for all.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def sync(group: Group, event: Sync, out: Effects) -> None:
    """Give the member its assignment: now, or once the leader has sent it and the store has it."""
    error_code = _sync_error(group, event)
    if error_code is ErrorCode.NONE and group.state is GroupState.PREPARING_REBALANCE:
        error_code = ErrorCode.REBALANCE_IN_PROGRESS
    if error_code is not ErrorCode.NONE:
        out.append(Answer(event.reply_id, Synced(error_code=error_code)))
        return
    member = group.members[event.member_id]
    group.pending_syncs.discard(event.member_id)
    if group.state is GroupState.STABLE:
        out.append(Answer(event.reply_id, assignment_of(group, member)))
        return
    await_sync(member, event.reply_id, out)
    if event.member_id == group.leader and group.assignments_to_store is None:
        assignments = {member_id: event.assignments.get(member_id, b"") for member_id in group.members}
        store_id = group.next_store_id()
        group.assignments_to_store = (store_id, assignments)
        out.append(Store(store_id, group.record(assignments)))


def answer_leaves(group: Group, event: Stored, out: Effects) -> None:
    """Confirm the leave of the last members: it is durable."""
    if event.store_id in group.leaves_to_store:
        out.append(Answer(*group.leaves_to_store.pop(event.store_id)))


def fail_leaves(group: Group, event: StoreFailed, out: Effects) -> None:
    """Answer the leave of the last members with the error: it may not be durable."""
    if event.store_id in group.leaves_to_store:
        reply_id, _ = group.leaves_to_store.pop(event.store_id)
        out.append(Answer(reply_id, Left(event.error_code)))


def stored(group: Group, event: Stored, out: Effects) -> None:
    """Continue what waited for the store, unless the group has rebalanced meanwhile."""
    answer_leaves(group, event, out)
    if group.assignments_to_store is not None and group.assignments_to_store[0] == event.store_id:
        _, assignments = group.assignments_to_store
        group.assignments_to_store = None
        become_stable(group, assignments, event.now_ms, out)
        return
    replacement = group.replacements_to_store.pop(event.store_id, None)
    member = None if replacement is None else group.members.get(replacement.member_id)
    if replacement is not None and member is not None:
        answer_join(member, _generation_for_returned(group, member, replacement), out)


def _generation_for_returned(group: Group, member: Member, replacement: Replacement) -> Joined:
    """The answer to a static member that keeps its assignment."""
    if not replacement.can_skip_assignment:
        # A leader gets the former leader's id: taking itself for a follower, it assigns nothing (as Kafka does).
        return replace(current_generation(group, member), leader=replacement.former_leader or NO_MEMBER_ID)
    leads = group.leader == member.member_id
    members = group.members_for_leader() if leads else ()
    return replace(current_generation(group, member, members), skip_assignment=leads)


def store_failed(group: Group, event: StoreFailed, out: Effects) -> None:
    """Answer with the error, since no member may act on what may not be durable; the members join again."""
    fail_leaves(group, event, out)
    if group.assignments_to_store is not None and group.assignments_to_store[0] == event.store_id:
        reset_assignments(group, event.error_code, event.now_ms, out)
        prepare_rebalance(group, "the assignments could not be stored", event.now_ms, out)
        return
    replacement = group.replacements_to_store.pop(event.store_id, None)
    member = None if replacement is None else group.members.get(replacement.member_id)
    if member is not None:
        answer_join(member, Joined(error_code=event.error_code), out)
