"""JoinGroup in a consumer group: members that use the classic protocol share it with the others (KIP-848).

As Apache Kafka's classicGroupJoinToConsumerGroup. The coordinator assigns, so that a join waits for no other member:
it is one step of the member towards the target, as a heartbeat of the consumer protocol is, and its generation is
the member's epoch. What the member has is in its subscription.
"""

from dataclasses import replace
from typing import Final

from kafscale.formats.consumer_member_record import (
    MAX_MEMBER_BYTES,
    ClassicMembership,
    ConsumerMember,
    MemberState,
)
from kafscale.groups import machine
from kafscale.groups.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, AwaitedTarget, ConsumerGroup
from kafscale.groups.consumer.downgrading import can_downgrade, classic_group, hand_over
from kafscale.groups.consumer.heartbeats import static_member, take_over
from kafscale.groups.consumer.reconciling import is_reconciled, reconcile
from kafscale.groups.consumer.settling import Effects, raise_epoch, settle, supersede
from kafscale.groups.consumer_protocol import (
    MalformedProtocolError,
    Subscription,
    TopicPartitions,
    decode_subscription,
)
from kafscale.groups.effects import Answer, Effect, Joined
from kafscale.groups.events import NO_MEMBER_ID, Join
from kafscale.groups.modern.assignment import Assignment, union
from kafscale.groups.modern.settling import ask_for_target
from kafscale.groups.rebalancing import prepare_rebalance
from kafscale.protocol.error_codes import ErrorCode, KafkaError

_MAX_PROTOCOL_BYTES: Final = MAX_MEMBER_BYTES // 2


def join(group: ConsumerGroup, event: Join, out: Effects) -> None:
    """Add the member, or let it take its next step. The request may be refused; then nothing has changed."""
    try:
        _check_room(group, event.member_id)
        subscription = _subscription(group, event)
        if event.member_id == NO_MEMBER_ID and event.group_instance_id is None and event.member_id_required:
            answer = Joined(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=event.new_member_id)
            out.append(Answer(event.reply_id, answer))
            return
        if not _joins_classic_group(group, event, subscription, out):
            _join(group, event, subscription, out)
    except KafkaError as refusal:
        out.append(Answer(event.reply_id, Joined(error_code=refusal.code)))


def _check_room(group: ConsumerGroup, member_id: str) -> None:
    if member_id not in group.members and len(group.members) >= group.policy.max_size:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(group.members)} members")


def _subscription(group: ConsumerGroup, event: Join) -> Subscription:
    """The member's subscription: that of its first protocol, since all have the same one."""
    if not group.supports_classic(event.protocol_type, (one.name for one in event.protocols)):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol is that of all classic members")
    size_bytes = sum(len(one.metadata) for one in event.protocols)
    if size_bytes > _MAX_PROTOCOL_BYTES:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,  # As in Kafka, for what cannot be stored.
            f"protocols of {size_bytes} bytes, at most {_MAX_PROTOCOL_BYTES} can be stored",
        )
    try:
        return decode_subscription(event.protocols[0].metadata)
    except MalformedProtocolError as problem:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(problem)) from problem


def _join(group: ConsumerGroup, event: Join, subscription: Subscription, out: Effects) -> None:
    member = _member(group, event, out)
    updated = _updated(member, event, subscription)
    group.put(updated)
    group.set_session(updated.member_id, event.now_ms + event.session_timeout_ms)
    group.set_rebalance_deadline(updated.member_id, None)
    if (updated.subscribed_topic_names, None) != (
        member.subscribed_topic_names,
        member.subscribed_topic_regex,
    ):
        raise_epoch(group, "a member of the classic protocol joined", event.now_ms, out)
    awaited = AwaitedTarget(group.group_epoch, event, updated.member_id, member.assigned)
    if group.topics is None or group.group_epoch > group.assignment_epoch:
        supersede(group, updated.member_id, out)
        group.awaited_targets.add(updated.member_id, awaited)
        if not group.unresolved():
            ask_for_target(group, out)
        return
    settle(group, [go_on_joining(group, awaited, event.now_ms)], event.now_ms, out)


def _member(group: ConsumerGroup, event: Join, out: Effects) -> ConsumerMember:
    is_new = event.member_id == NO_MEMBER_ID
    member_id = event.new_member_id if is_new else event.member_id
    if event.group_instance_id is None:
        # Any id is accepted, as in Kafka: those that were given are not remembered.
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    if not is_new:
        return static_member(group, event.group_instance_id, member_id)
    owner_id = group.static_members.get(event.group_instance_id)
    if owner_id is None:
        return ConsumerMember(member_id=member_id)
    return take_over(group, group.members[owner_id], member_id, event.now_ms, out)


def _updated(member: ConsumerMember, event: Join, subscription: Subscription) -> ConsumerMember:
    return replace(
        member,
        instance_id=event.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex=None,
        classic=ClassicMembership(
            session_timeout_ms=event.session_timeout_ms,
            protocols=tuple((one.name, one.metadata) for one in event.protocols),
        ),
    )


def go_on_joining(group: ConsumerGroup, awaited: AwaitedTarget, now_ms: int) -> Answer:
    """Take the member's next step towards the target, and answer its join. It has to sync in time."""
    event, member = awaited.event, group.members.get(awaited.member_id)
    assert isinstance(event, Join)
    if member is None or member.classic is None:
        return Answer(event.reply_id, Joined(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    owned = owned_partitions(group, member, decode_subscription(event.protocols[0].metadata).owned)
    target = group.target_of(member.member_id)
    moved = reconcile(member, group.assignment_epoch, target, group.is_owned, owned)
    group.put(moved)
    group.set_session(moved.member_id, now_ms + member.classic.session_timeout_ms)
    group.set_rebalance_deadline(moved.member_id, now_ms + moved.rebalance_timeout_ms)
    answer = Joined(
        member_id=moved.member_id,
        generation=moved.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0][0],
    )
    return Answer(event.reply_id, answer)


def owned_partitions(group: ConsumerGroup, member: ConsumerMember, owned: TopicPartitions) -> Assignment:
    """The partitions that the member says it has, by topic id.

    A topic whose id is not known was deleted, or no member subscribes to it any more. A member that names one may
    have all partitions of such topics that it had.
    """
    topic_ids = {name: topic_id for topic_id, name in group.topic_names.items()}
    if group.topics is not None:
        topic_ids.update((name, topic.topic_id) for name, topic in group.topics.items())
    known = {topic_ids[name]: indexes for name, indexes in owned.items() if name in topic_ids}
    if len(known) == len(owned):
        return known
    had = union(member.assigned, member.pending_revocation)
    return union(known, {one: indexes for one, indexes in had.items() if one not in group.topic_names})


def _joins_classic_group(group: ConsumerGroup, event: Join, subscription: Subscription, out: Effects) -> bool:
    """True if the join replaces the last member of the consumer protocol: it joins the classic group then.

    If every member has what the target gives it, the group does not rebalance. Kafka's never does here, and may give
    a partition to the new member that another still has.
    """
    instance_id = event.group_instance_id
    owner = None if instance_id is None else group.members.get(group.static_members.get(instance_id, ""))
    if owner is None or owner.classic is not None or event.member_id not in (NO_MEMBER_ID, owner.member_id):
        return False
    is_settled = _is_settled(group, owner)
    group.put(_updated(owner, event, subscription))
    classic = classic_group(group, event.now_ms) if can_downgrade(group) else None
    if classic is None:
        group.put(owner)
        return False
    effects: list[Effect] = []
    if is_settled:
        classic.protocol_name = classic.select_protocol()
    else:
        prepare_rebalance(classic, "the last member of the consumer protocol is gone", event.now_ms, effects)
    hand_over(group, classic, out)
    out.extend(effects)
    out.extend(machine.apply(classic, event))
    return True


def _is_settled(group: ConsumerGroup, replaced: ConsumerMember) -> bool:
    """True if each member has what the target gives it; the one that is replaced may have left for a while."""
    epoch = group.assignment_epoch
    return (
        group.group_epoch == epoch
        and group.topics is not None
        and replaced.state is MemberState.STABLE
        and replaced.assigned == group.target_of(replaced.member_id)
        and all(one is replaced or is_reconciled(one, epoch) for one in group.members.values())
    )
