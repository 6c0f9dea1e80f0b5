"""A consumer group whose last member of the consumer protocol is gone becomes a classic group again (KIP-848).

As Apache Kafka's convertToClassicGroup, with one difference: a member's assignment in the classic group is what it
has, or may have still, not what the target would have given it. It is of use only if the group changes its type again
before it has rebalanced, and then no partition may have two owners.
"""

from kafscale.formats.consumer_member_record import ConsumerMember
from kafscale.formats.group_record import (
    MAX_GROUP_RECORD_BYTES,
    GroupRecord,
    GroupRecordTooLargeError,
    encode_group_record,
)
from kafscale.groups.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from kafscale.groups.consumer.effects import Downgraded
from kafscale.groups.consumer.events import ConsumerHeartbeatReceived
from kafscale.groups.consumer.settling import Effects, raise_epoch, settle
from kafscale.groups.consumer_protocol import MalformedProtocolError, decode_subscription, encode_assignment
from kafscale.groups.effects import Answer, Effect, Heartbeated, Joined
from kafscale.groups.events import Protocol
from kafscale.groups.group import Group, Member
from kafscale.groups.modern.assignment import Assignment, union
from kafscale.groups.modern.settling import ask_for_target
from kafscale.groups.rebalancing import prepare_rebalance
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode


def members_removed(group: ConsumerGroup, reason: str, now_ms: int, out: Effects) -> None:
    """Members have been removed: there is to be another target, or a classic group. `finish` must follow."""
    if can_downgrade(group):
        group.successor = classic_group(group, now_ms)
    if group.successor is None:
        raise_epoch(group, reason, now_ms, out)
        if group.awaited_targets and not group.unresolved():
            ask_for_target(group, out)


def finish(group: ConsumerGroup, answers: list[Answer], now_ms: int, out: Effects) -> None:
    """Settle, and hand the group over to the classic group that it is to become, if any."""
    settle(group, answers, now_ms, out)
    if group.successor is None:
        return
    classic = group.successor
    effects: list[Effect] = []
    prepare_rebalance(classic, "the last member of the consumer protocol is gone", now_ms, effects)
    hand_over(group, classic, out)
    out.extend(effects)


def can_downgrade(group: ConsumerGroup) -> bool:
    """True if all members use the classic protocol, and the settings allow the group to be a classic group.

    The names of the topics have to be known: a group that was loaded a moment ago waits for its first target.
    """
    policy = group.policy
    return (
        group.topics is not None
        and bool(group.members)
        and group.has_only_classic_members
        and policy.migration.has_downgrade
        and len(group.members) <= policy.classic.max_size
    )


def hand_over(group: ConsumerGroup, classic: Group, out: Effects) -> None:
    """The group ends as a consumer group. Requests that wait for a target are refused: the members join again."""
    for one in group.awaited_targets.take_all():
        if isinstance(one.event, ConsumerHeartbeatReceived):
            out.append(
                Answer(one.event.reply_id, Heartbeated(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            )
        else:
            refusal = Joined(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=one.member_id)
            out.append(Answer(one.event.reply_id, refusal))
    removed = tuple(sorted({*group.members, *group.changes.removed}))
    group.successor = None
    group.is_dead = True
    out.append(Downgraded(group=classic, record=classic.record(), removed=removed))


def classic_group(group: ConsumerGroup, now_ms: int) -> Group | None:
    """The classic group of the members, in which all of them are to join; None if it cannot be stored.

    No protocol is selected in it: by that a later coordinator knows, too, that they are to join.
    """
    classic = Group(group.group_id, group.policy.classic, now_ms)
    classic.generation = group.group_epoch
    classic.set_protocol_type(CONSUMER_PROTOCOL_TYPE)
    for member in group.members.values():
        added = _member(group, member, now_ms)
        if added is None:
            return None
        classic.add(added)
    classic.state = GroupState.STABLE
    return classic if _can_be_stored(classic.record()) else None


def _can_be_stored(record: GroupRecord) -> bool:
    try:
        return len(encode_group_record(record)) <= MAX_GROUP_RECORD_BYTES
    except GroupRecordTooLargeError:
        return False


def _member(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> Member | None:
    assert member.classic is not None
    try:
        assignment = encoded(group, member, union(member.assigned, member.pending_revocation))
    except MalformedProtocolError:
        return None  # Stored by a broker that was less strict.
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=tuple(Protocol(name, metadata) for name, metadata in member.classic.protocols),
        assignment=assignment,
        expires_at_ms=now_ms + member.classic.session_timeout_ms,
    )


def encoded(group: ConsumerGroup, member: ConsumerMember, assignment: Assignment) -> bytes:
    """The partitions as SyncGroup has them for a classic member. Topics that do not exist any more are left out.

    Raises `MalformedProtocolError`.
    """
    assert member.classic is not None
    version = decode_subscription(member.classic.protocols[0][1]).version
    names = group.topic_names
    return encode_assignment(
        version,
        {names[topic_id]: indexes for topic_id, indexes in assignment.items() if topic_id in names},
    )
