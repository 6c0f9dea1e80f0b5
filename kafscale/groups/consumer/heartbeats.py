"""ConsumerGroupHeartbeat: a member joins, goes on, changes what it subscribes to, or leaves (KIP-848).

As Apache Kafka's GroupMetadataManager. The target assignment is computed elsewhere; who changed it waits for it.
"""

from dataclasses import replace

from kafscale.formats.consumer_member_record import ConsumerMember, MemberState
from kafscale.groups.consumer.consumer_group import AwaitedTarget, ConsumerGroup
from kafscale.groups.consumer.downgrading import finish, members_removed
from kafscale.groups.consumer.events import LEAVES_FOR_A_WHILE, ConsumerHeartbeatReceived
from kafscale.groups.consumer.reconciling import reconcile
from kafscale.groups.consumer.settling import Effects, raise_epoch, settle, supersede
from kafscale.groups.effects import Answer, Heartbeated
from kafscale.groups.modern.assignment import is_subset
from kafscale.groups.modern.events import JOINS
from kafscale.groups.modern.settling import ask_for_target, refuse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted


def heartbeat(group: ConsumerGroup, event: ConsumerHeartbeatReceived, out: Effects) -> None:
    """Any heartbeat. The request may be refused; then nothing has changed."""
    try:
        if event.member_epoch < JOINS:
            _leave(group, event, out)
        else:
            _join_or_go_on(group, event, out)
    except KafkaError as refusal:
        refuse(event.reply_id, refusal.code, refusal.message, out)


# --- leaving


def _leave(group: ConsumerGroup, event: ConsumerHeartbeatReceived, out: Effects) -> None:
    if event.instance_id is None:
        member = known_member(group, event.member_id)
    else:
        member = static_member(group, event.instance_id, event.member_id)
    supersede(group, member.member_id, out)
    if event.member_epoch == LEAVES_FOR_A_WHILE:
        # Its partitions stay its own until it returns, or its session ends.
        group.put(replace(member, member_epoch=LEAVES_FOR_A_WHILE, pending_revocation={}))
        group.set_rebalance_deadline(member.member_id, None)
    else:
        group.remove(member.member_id)
        members_removed(group, "a member left", event.now_ms, out)
    content = Heartbeated(member_id=event.member_id, member_epoch=event.member_epoch)
    finish(group, [Answer(event.reply_id, content)], event.now_ms, out)


# --- joining and going on


def _join_or_go_on(group: ConsumerGroup, event: ConsumerHeartbeatReceived, out: Effects) -> None:
    is_known = event.member_id in group.members
    if not is_known and len(group.members) >= group.policy.max_size:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the group has {group.policy.max_size} members, the most that it may have",
        )
    is_static = event.instance_id is not None
    member = _static_member(group, event, out) if is_static else _dynamic_member(group, event)
    supersede(group, event.member_id, out)
    before = group.members.get(event.member_id)
    updated = _updated(member, event)
    group.put(updated)
    is_other_topics = False
    if event.resolved is not None and event.subscribed_topic_regex:
        is_other_topics = group.resolved.get(event.subscribed_topic_regex) != event.resolved
        group.set_resolved(event.subscribed_topic_regex, event.resolved)
    group.set_session(event.member_id, event.now_ms + group.session_timeout_ms(updated))
    if member.classic is not None:
        # It is not expected to join or to sync any more.
        group.set_rebalance_deadline(event.member_id, None)
    is_first = group.group_epoch == 0
    is_other = updated is not member and _subscription(updated) != _subscription(member)
    if is_first or is_other or is_other_topics:
        raise_epoch(
            group, "a member joined" if before is None else "a subscription changed", event.now_ms, out
        )
    awaited = AwaitedTarget(group.group_epoch, event, event.member_id, member.assigned)
    if group.group_epoch > group.assignment_epoch:
        group.awaited_targets.add(event.member_id, awaited)
        ask_for_target(group, out)
        return
    settle(group, [go_on(group, awaited)], event.now_ms, out)


def go_on(group: ConsumerGroup, awaited: AwaitedTarget) -> Answer:
    """Take the member's next step towards the target, and answer its heartbeat."""
    event, member = awaited.event, group.members.get(awaited.member_id)
    assert isinstance(event, ConsumerHeartbeatReceived)
    if member is None:
        content = Heartbeated(
            error_code=ErrorCode.UNKNOWN_MEMBER_ID, message="the member has left the group meanwhile"
        )
        return Answer(event.reply_id, content)
    moved = reconcile(
        member, group.assignment_epoch, group.target_of(member.member_id), group.is_owned, event.owned
    )
    if moved is not member and moved != member:
        group.put(moved)
        is_revoking = moved.state is MemberState.UNREVOKED_PARTITIONS and moved.classic is None
        at_ms = event.now_ms + moved.rebalance_timeout_ms if is_revoking else None
        group.set_rebalance_deadline(moved.member_id, at_ms)
    is_news = event.is_full or moved.assigned != awaited.told
    content = Heartbeated(
        member_id=moved.member_id,
        member_epoch=moved.member_epoch,
        assignment=moved.assigned if is_news else None,
    )
    return Answer(event.reply_id, content)


def _updated(member: ConsumerMember, event: ConsumerHeartbeatReceived) -> ConsumerMember:
    """The member with what the request says; what it leaves out is as it was."""
    if _says_nothing(member, event):
        return member
    names, regex = event.subscribed_topic_names, event.subscribed_topic_regex
    return replace(
        member,
        instance_id=event.instance_id or member.instance_id,
        rack_id=event.rack_id or member.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if event.rebalance_timeout_ms == -1
        else event.rebalance_timeout_ms,
        subscribed_topic_names=member.subscribed_topic_names if names is None else names,
        # An empty one takes it back.
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex or None,
        server_assignor=event.server_assignor or member.server_assignor,
        classic=None,
    )


def _says_nothing(member: ConsumerMember, event: ConsumerHeartbeatReceived) -> bool:
    """True for nearly every heartbeat."""
    return (
        event.subscribed_topic_names is None
        and event.subscribed_topic_regex is None
        and event.rebalance_timeout_ms == -1
        and event.instance_id is None
        and event.rack_id is None
        and event.server_assignor is None
        and event.client_id == member.client_id
        and event.client_host == member.client_host
        and member.classic is None
    )


def _subscription(member: ConsumerMember) -> tuple[frozenset[str], str | None]:
    return member.subscribed_topic_names, member.subscribed_topic_regex


def _dynamic_member(group: ConsumerGroup, event: ConsumerHeartbeatReceived) -> ConsumerMember:
    member = group.members.get(event.member_id)
    if member is None and event.member_epoch == JOINS:
        return ConsumerMember(member_id=event.member_id)
    member = known_member(group, event.member_id)
    _check_epoch(member, event)
    return member


def _static_member(group: ConsumerGroup, event: ConsumerHeartbeatReceived, out: Effects) -> ConsumerMember:
    assert event.instance_id is not None
    if event.member_epoch != JOINS:
        member = static_member(group, event.instance_id, event.member_id)
        _check_epoch(member, event)
        return member
    owner_id = group.static_members.get(event.instance_id)
    if owner_id is None:
        return ConsumerMember(member_id=event.member_id)
    owner = group.members[owner_id]
    if owner.classic is None and owner.member_epoch != LEAVES_FOR_A_WHILE:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"the instance id '{quoted(event.instance_id)}' is that of '{quoted(owner_id)}', which has not left",
        )
    return take_over(group, owner, event.member_id, event.now_ms, out)


def take_over(
    group: ConsumerGroup, owner: ConsumerMember, member_id: str, now_ms: int, out: Effects
) -> ConsumerMember:
    """The static member that returns takes over all that it had, under a new member id."""
    target = group.target_of(owner.member_id)
    group.remove(owner.member_id)
    member = replace(owner, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    group.put(member)
    group.target = {**group.target, member.member_id: target}
    if group.is_assigning:
        # What is being computed is for the id of before.
        raise_epoch(group, "a static member returned", now_ms, out)
    return member


def known_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Raises `KafkaError` UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"'{quoted(member_id)}' is no member of '{quoted(group.group_id)}'"
        )
    return member


def static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    """Raises `KafkaError` UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    owner_id = group.static_members.get(instance_id)
    if owner_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"the instance id '{quoted(instance_id)}' is unknown")
    if owner_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"the instance id '{quoted(instance_id)}' is that of member '{quoted(owner_id)}'",
        )
    return group.members[owner_id]


def _check_epoch(member: ConsumerMember, event: ConsumerHeartbeatReceived) -> None:
    """An answer with a new epoch may have been lost: then the epoch before is good, if the member has no more.

    Epoch 0 is that of a member that was fenced: it has given up all, and joins again with the same id, as in Kafka
    4.2. Kafka 4.1 fenced it until its session had ended, and no member read its partitions for so long.
    """
    if event.member_epoch == JOINS:
        return
    received, known = event.member_epoch, member.member_epoch
    is_previous = (
        received < known
        and received == member.previous_member_epoch
        and event.owned is not None
        and is_subset(event.owned, member.assigned)
    )
    if received != known and not is_previous:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member's epoch is {known}, not {received}: it must give up all of its partitions and join again",
        )
