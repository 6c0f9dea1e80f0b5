"""SyncGroup, Heartbeat and LeaveGroup in a consumer group (KIP-848); classic_joins.py has JoinGroup.

As Apache Kafka's classicGroupSyncToConsumerGroup, -HeartbeatTo- and -LeaveTo-. A classic member learns
from REBALANCE_IN_PROGRESS that it is to join again, and has its rebalance timeout for that, and for each sync.
"""

from kafscale.formats.consumer_member_record import ConsumerMember, MemberState
from kafscale.groups.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from kafscale.groups.consumer.downgrading import encoded, finish, members_removed
from kafscale.groups.consumer.heartbeats import known_member, static_member
from kafscale.groups.consumer.settling import Effects, settle
from kafscale.groups.effects import Answer, Decided, Left, Synced
from kafscale.groups.events import NO_MEMBER_ID, Heartbeat, Leave, LeavingMember, Sync
from kafscale.groups.modern.assignment import difference, partitions_of
from kafscale.protocol.error_codes import ErrorCode, KafkaError


def sync(group: ConsumerGroup, event: Sync, out: Effects) -> None:
    """Give the member what is its own: there is no leader to wait for."""
    try:
        member = _classic_member(group, event)
        _check_protocol(member, event)
        if _is_outdated(group, member):
            _expect_join(group, member, event.now_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the group has a later epoch")
        if group.topics is None:
            # The names of its topics are not known yet. Its join will wait for them.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the group was loaded a moment ago")
    except KafkaError as refusal:
        out.append(Answer(event.reply_id, Synced(error_code=refusal.code)))
        return
    assert member.classic is not None
    group.set_rebalance_deadline(member.member_id, None)
    group.set_session(member.member_id, event.now_ms + member.classic.session_timeout_ms)
    content = Synced(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0][0],
        assignment=encoded(group, member, member.assigned),
    )
    settle(group, [Answer(event.reply_id, content)], event.now_ms, out)


def heartbeat(group: ConsumerGroup, event: Heartbeat, out: Effects) -> None:
    """Extend the member's session; REBALANCE_IN_PROGRESS makes it join."""
    try:
        member = _classic_member(group, event)
    except KafkaError as refusal:
        out.append(Answer(event.reply_id, Decided(refusal.code)))
        return
    assert member.classic is not None
    group.set_session(member.member_id, event.now_ms + member.classic.session_timeout_ms)
    error_code = ErrorCode.NONE
    if _is_to_join(group, member):
        _expect_join(group, member, event.now_ms)
        error_code = ErrorCode.REBALANCE_IN_PROGRESS
    out.append(Answer(event.reply_id, Decided(error_code)))


def _classic_member(group: ConsumerGroup, event: Sync | Heartbeat) -> ConsumerMember:
    """The member of the request, at its epoch."""
    if event.group_instance_id is None:
        member = known_member(group, event.member_id)
    else:
        member = static_member(group, event.group_instance_id, event.member_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the member uses the consumer protocol")
    if event.generation != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"the member's epoch is {member.member_epoch}")
    return member


def _check_protocol(member: ConsumerMember, event: Sync) -> None:
    assert member.classic is not None
    if event.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or event.protocol_name not in (
        None,
        member.classic.protocols[0][0],
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "it is not the protocol of the join's answer")


def _is_outdated(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """True if the member is to join first. One that has partitions to give up has joined for that."""
    return group.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS


def _is_to_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            return True
        case MemberState.UNRELEASED_PARTITIONS if not _waits_for_others(group, member):
            return True
        case _:
            return group.group_epoch > member.member_epoch


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    missing = difference(group.target_of(member.member_id), member.assigned)
    return any(group.is_owned(partition) for partition in partitions_of(missing))


def _expect_join(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    if member.member_id not in group.rebalance_deadlines:
        group.set_rebalance_deadline(member.member_id, now_ms + member.rebalance_timeout_ms)


def leave(group: ConsumerGroup, event: Leave, out: Effects) -> None:
    """Remove the named members, of either protocol: administrators may do that, too."""
    before = len(group.members)
    results = tuple((leaving, _leave_one(group, leaving)) for leaving in event.members)
    if len(group.members) < before:
        members_removed(group, "members left", event.now_ms, out)
    finish(group, [Answer(event.reply_id, Left(ErrorCode.NONE, results))], event.now_ms, out)


def _leave_one(group: ConsumerGroup, leaving: LeavingMember) -> ErrorCode:
    instance_id = leaving.group_instance_id
    try:
        if instance_id is None:
            member = known_member(group, leaving.member_id)
        else:
            owner_id = leaving.member_id or group.static_members.get(instance_id, NO_MEMBER_ID)
            member = static_member(group, instance_id, owner_id)
    except KafkaError as refusal:
        return refusal.code
    group.remove(member.member_id)
    return ErrorCode.NONE
