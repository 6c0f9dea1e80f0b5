"""Checks that a request comes from a member of this generation: Heartbeat, commits, and what others share."""

from kafscale.groups.effects import Answer, Decided
from kafscale.groups.events import NO_MEMBER_ID, Commit, Heartbeat, Remove
from kafscale.groups.group import Group
from kafscale.groups.rebalancing import Effects, enter, extend_session
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode


def member_error(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """NONE for a member. FENCED_INSTANCE_ID: another member has the instance id now (KIP-345)."""
    if group_instance_id is not None:
        owner_id = group.static_members.get(group_instance_id)
        if owner_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _generation_error(group: Group, event: Heartbeat | Commit) -> ErrorCode:
    error_code = member_error(group, event.member_id, event.group_instance_id)
    if error_code is ErrorCode.NONE and event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error_code


def heartbeat(group: Group, event: Heartbeat, out: Effects) -> None:
    """Extend the member's session; REBALANCE_IN_PROGRESS makes it join."""
    error_code = _generation_error(group, event)
    if error_code is ErrorCode.NONE:
        extend_session(group.members[event.member_id], event.now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            error_code = ErrorCode.REBALANCE_IN_PROGRESS
    out.append(Answer(event.reply_id, Decided(error_code)))


def commit(group: Group, event: Commit, out: Effects) -> None:
    """Allow members to commit once their generation is complete, and other clients while the group is empty."""
    out.append(Answer(event.reply_id, Decided(_commit_error(group, event))))


def _commit_error(group: Group, event: Commit) -> ErrorCode:
    if group.state is GroupState.EMPTY and event.generation < 0:
        return ErrorCode.NONE
    anonymous = event.member_id == NO_MEMBER_ID and event.group_instance_id is None
    if event.generation < 0 and anonymous:
        # Before its version 3, TxnOffsetCommit did not say who commits: the transaction's producer may (KIP-447).
        return ErrorCode.NONE if event.is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error_code = _generation_error(group, event)
    if error_code is not ErrorCode.NONE or event.is_transactional:
        # As in Kafka, such a commit does not extend the session, and the group's state does not matter.
        return error_code
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member cannot have this generation's assignment yet: it commits for the one before.
        return ErrorCode.REBALANCE_IN_PROGRESS
    extend_session(group.members[event.member_id], event.now_ms)
    return ErrorCode.NONE


def remove_empty(group: Group, event: Remove, out: Effects) -> None:
    """Let the group die, so that no member can join before its record is deleted."""
    group.remove_all_pending()
    enter(group, GroupState.DEAD, event.now_ms)
    out.append(Answer(event.reply_id, Decided(ErrorCode.NONE)))


def refuse_removal(group: Group, event: Remove, out: Effects) -> None:
    """Answer NON_EMPTY_GROUP."""
    out.append(Answer(event.reply_id, Decided(ErrorCode.NON_EMPTY_GROUP)))
