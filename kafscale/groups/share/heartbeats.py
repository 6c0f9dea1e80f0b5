"""ShareGroupHeartbeat: a member joins, goes on, changes what it subscribes to, or leaves (KIP-932).

As Apache Kafka's GroupMetadataManager. One thing is otherwise: a member that is known may join again at any epoch.
Kafka refuses that, unless its epoch before was 0, until its session has ended; here no partition has one owner only,
so that nothing has to be protected from a member that was fenced, or whose answers were lost.
"""

from dataclasses import replace

from kafscale.formats.share_member_record import ShareMember
from kafscale.groups.effects import Answer, Heartbeated
from kafscale.groups.modern.events import JOINS
from kafscale.groups.modern.settling import ask_for_target, refuse
from kafscale.groups.share.events import ShareHeartbeatReceived
from kafscale.groups.share.member import at_target
from kafscale.groups.share.settling import Effects, members_removed, raise_epoch, refusal_of, settle
from kafscale.groups.share.share_group import AwaitedTarget, ShareGroup
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted


def heartbeat(group: ShareGroup, event: ShareHeartbeatReceived, out: Effects) -> None:
    """Any heartbeat. The request may be refused; then nothing has changed."""
    try:
        if event.member_epoch < JOINS:
            _leave(group, event, out)
        else:
            _join_or_go_on(group, event, out)
    except KafkaError as refusal:
        refuse(event.reply_id, refusal.code, refusal.message, out)


def _leave(group: ShareGroup, event: ShareHeartbeatReceived, out: Effects) -> None:
    member = _known_member(group, event.member_id)
    _supersede(group, member.member_id, out)
    group.remove(member.member_id)
    members_removed(group, event.now_ms, out)
    content = Heartbeated(member_id=event.member_id, member_epoch=event.member_epoch)
    settle(group, [Answer(event.reply_id, content)], out)


def _join_or_go_on(group: ShareGroup, event: ShareHeartbeatReceived, out: Effects) -> None:
    member = _member(group, event)
    _supersede(group, event.member_id, out)
    updated = _updated(member, event)
    is_new = event.member_id not in group.members
    group.put(updated)
    group.set_session(event.member_id, event.now_ms + group.policy.session_timeout_ms)
    if is_new or updated.subscribed_topic_names != member.subscribed_topic_names:
        raise_epoch(group, event.now_ms)
    elif group.ask_starts_again_ms is not None and group.ask_starts_again_ms <= event.now_ms:
        group.ask_starts_again_ms = None
        ask_for_target(group, out)
    is_behind = event.member_epoch < member.member_epoch
    awaited = AwaitedTarget(group.group_epoch, event, told=None if is_behind else member.assigned)
    if group.group_epoch > group.assignment_epoch:
        group.awaited_targets.add(event.member_id, awaited)
        ask_for_target(group, out)
        return
    settle(group, [go_on(group, awaited)], out)


def _supersede(group: ShareGroup, member_id: str, out: Effects) -> None:
    """A member waits for one answer: it has given up the one before."""
    earlier = group.awaited_targets.take(member_id)
    if earlier is not None:
        given_up = ErrorCode.COORDINATOR_NOT_AVAILABLE
        out.append(refusal_of(earlier, given_up, "the member has asked again since"))


def go_on(group: ShareGroup, awaited: AwaitedTarget) -> Answer:
    """Give the member what the target gives it, and answer its heartbeat."""
    event, member = awaited.event, group.members[awaited.event.member_id]
    moved = at_target(member, group.assignment_epoch, group.target_of(member.member_id))
    group.put(moved)
    is_news = event.is_full or moved.assigned != awaited.told
    content = Heartbeated(
        member_id=moved.member_id,
        member_epoch=moved.member_epoch,
        assignment=moved.assigned if is_news else None,
    )
    return Answer(event.reply_id, content)


def _updated(member: ShareMember, event: ShareHeartbeatReceived) -> ShareMember:
    """The member with what the request says; what it leaves out is as it was."""
    names = event.subscribed_topic_names
    return replace(
        member,
        rack_id=event.rack_id or member.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else names,
    )


def _member(group: ShareGroup, event: ShareHeartbeatReceived) -> ShareMember:
    member = group.members.get(event.member_id)
    if member is None and len(group.members) >= group.policy.max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {group.policy.max_size} members.",
        )
    if event.member_epoch == JOINS:
        return member or ShareMember(member_id=event.member_id)
    member = _known_member(group, event.member_id)
    if event.member_epoch not in (member.member_epoch, member.previous_member_epoch):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member's epoch is {member.member_epoch}, not {event.member_epoch}: it must give up all of its "
            "partitions and join again",
        )
    return member


def _known_member(group: ShareGroup, member_id: str) -> ShareMember:
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"'{quoted(member_id)}' is no member of '{quoted(group.group_id)}'"
        )
    return member
