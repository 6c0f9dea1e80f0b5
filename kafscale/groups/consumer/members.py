"""Commits of members of a consumer group, and its removal."""

from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.settling import Effects, refusal_of
from kafscale.groups.effects import Answer, Decided
from kafscale.groups.events import NO_MEMBER_ID, Commit, Remove
from kafscale.protocol.error_codes import ErrorCode


def commit(group: ConsumerGroup, event: Commit, out: Effects) -> None:
    """Allow members to commit at their epoch, and other clients while the group is empty."""
    out.append(Answer(event.reply_id, Decided(_commit_error(group, event))))


def _commit_error(group: ConsumerGroup, event: Commit) -> ErrorCode:
    if event.generation < 0 and not group.members:
        return ErrorCode.NONE
    if event.is_transactional and event.generation < 0 and event.member_id == NO_MEMBER_ID:
        return ErrorCode.NONE
    member = group.members.get(event.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and not (event.knows_member_epochs or event.is_transactional):
        return ErrorCode.UNSUPPORTED_VERSION
    error_code = epoch_error(group, event.member_id, event.generation)
    if error_code is ErrorCode.STALE_MEMBER_EPOCH and event.is_transactional:
        return ErrorCode.ILLEGAL_GENERATION  # TxnOffsetCommit has no other.
    return error_code


def epoch_error(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    """NONE for a member at its epoch."""
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def remove(group: ConsumerGroup, event: Remove, out: Effects) -> None:
    """Let an empty group die, so that no member can join before its record is deleted."""
    if group.members:
        out.append(Answer(event.reply_id, Decided(ErrorCode.NON_EMPTY_GROUP)))
        return
    group.is_dead = True
    out.append(Answer(event.reply_id, Decided(ErrorCode.NONE)))
    left = ErrorCode.UNKNOWN_MEMBER_ID
    waiting = group.awaited_targets.take_all()
    out.extend(refusal_of(one, left, "the member has left the group meanwhile") for one in waiting)
