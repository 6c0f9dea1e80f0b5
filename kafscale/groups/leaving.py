"""Members that leave: LeaveGroup (KIP-345 for several at once), expired sessions, deadlines that pass."""

from kafscale.groups.effects import Answer, Joined, Left, Store, Synced
from kafscale.groups.events import NO_MEMBER_ID, Leave, LeavingMember, TimePassed, Unload
from kafscale.groups.group import Group
from kafscale.groups.rebalancing import (
    Effects,
    answer_join,
    answer_sync,
    complete_join,
    enter,
    join_deadline_passed,
    prepare_rebalance,
    rebalance_or_complete_join,
    remove_member,
)
from kafscale.groups.states import GroupState
from kafscale.groups.validation import member_error
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.quoting import quoted

_LOGGED_REASONS_CHARACTERS = 500


def leave(group: Group, event: Leave, out: Effects) -> None:
    """Remove the named members; the others join again. The last members get their answer once it is durable."""
    members = len(group.members)
    results = tuple((leaving, _leave_one(group, leaving, out)) for leaving in event.members)
    left = members - len(group.members)
    # A pending member that leaves may have been the last that a rebalance waited for.
    if left or group.state is GroupState.PREPARING_REBALANCE:
        reasons = sorted({leaving.reason for leaving in event.members if leaving.reason})
        because = f": {quoted('; '.join(reasons), _LOGGED_REASONS_CHARACTERS)}" if reasons else ""
        rebalance_or_complete_join(group, f"{left} members left{because}", event.now_ms, out)
    content = Left(ErrorCode.NONE, results)
    emptied = next((effect.store_id for effect in out if isinstance(effect, Store)), None)
    if emptied is None:
        out.append(Answer(event.reply_id, content))
    else:
        # Otherwise the next coordinator would wait for the sessions of members whose leave was confirmed.
        group.leaves_to_store[emptied] = (event.reply_id, content)


def _leave_one(group: Group, leaving: LeavingMember, out: Effects) -> ErrorCode:
    member_id = leaving.member_id
    if member_id in group.pending_members:
        group.remove_pending(member_id)
        return ErrorCode.NONE
    if member_id == NO_MEMBER_ID and leaving.group_instance_id is not None:
        member_id = group.static_members.get(leaving.group_instance_id, NO_MEMBER_ID)
    error_code = member_error(group, member_id, leaving.group_instance_id)
    if error_code is ErrorCode.NONE:
        remove_member(group, member_id, out)
    return error_code


def time_passed(group: Group, event: TimePassed, out: Effects) -> None:
    """Remove members whose session has expired; stop waiting for those that did not join or sync in time."""
    now_ms = event.now_ms
    _expire_members(group, now_ms, out)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now_ms:
        join_deadline_passed(group, now_ms, out)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now_ms:
        group.sync_deadline_ms = None
        if group.pending_syncs:
            _drop_unsynced(group, now_ms, out)


def _expire_members(group: Group, now_ms: int, out: Effects) -> None:
    pending = [member_id for member_id, at_ms in group.pending_members.items() if at_ms <= now_ms]
    for member_id in pending:
        group.remove_pending(member_id)
    expired = [
        member.member_id
        for member in group.members.values()
        if member.can_expire and member.expires_at_ms <= now_ms
    ]
    for member_id in expired:
        remove_member(group, member_id, out)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        if expired:
            prepare_rebalance(group, f"the sessions of {len(expired)} members ended", now_ms, out)
    elif group.state is GroupState.PREPARING_REBALANCE and (pending or expired) and group.all_joined:
        complete_join(group, now_ms, out)


def _drop_unsynced(group: Group, now_ms: int, out: Effects) -> None:
    late = [member_id for member_id in group.members if member_id in group.pending_syncs]
    for member_id in late:
        remove_member(group, member_id, out)
    prepare_rebalance(group, f"{len(late)} members did not sync", now_ms, out)


def unload(group: Group, event: Unload, out: Effects) -> None:
    """Answer every waiting request with NOT_COORDINATOR: the client looks for the coordinator again."""
    for member in group.members.values():
        answer_join(member, Joined(error_code=ErrorCode.NOT_COORDINATOR, member_id=member.member_id), out)
        answer_sync(member, Synced(error_code=ErrorCode.NOT_COORDINATOR), out)
    for reply_id, _ in group.leaves_to_store.values():
        out.append(Answer(reply_id, Left(ErrorCode.NOT_COORDINATOR)))
    group.leaves_to_store.clear()
    group.remove_all_pending()
    group.join_deadline_ms = None
    group.sync_deadline_ms = None
    enter(group, GroupState.DEAD, event.now_ms)
