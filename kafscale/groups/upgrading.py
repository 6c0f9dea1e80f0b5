"""A classic group of consumers becomes a consumer group when its first member of that protocol joins (KIP-848).

As Apache Kafka's convertToConsumerGroup. Kafka takes a member that has no assignment yet for one that owns nothing.
Here it owns what it said when it joined: after a rebalance that began again, that may be what it still works on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafscale.formats.consumer_member_record import (
    MAX_MEMBER_BYTES,
    ClassicMembership,
    ConsumerMember,
    MemberState,
    encode_consumer_member,
)
from kafscale.groups.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup, ConsumerPolicy
from kafscale.groups.consumer_protocol import (
    MalformedProtocolError,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
)
from kafscale.groups.effects import Answer, Joined, Synced
from kafscale.groups.group import Group, Member
from kafscale.groups.modern.assignment import Assignment, TopicIdPartition, difference, partitions_of
from kafscale.groups.modern.events import Topics
from kafscale.groups.rebalancing import enter
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted


@dataclass(frozen=True, slots=True)
class ReadMember:
    """A member of a classic group, and what its bytes say. `has`: the partitions that it may work on."""

    member: Member
    subscription: Subscription
    has: TopicPartitions


def check_upgrade(group: Group, policy: ConsumerPolicy) -> None:
    """Raises `KafkaError` GROUP_ID_NOT_FOUND if the group has to stay a classic group."""
    if not policy.migration.has_upgrade:
        raise _refusal(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refusal(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > policy.max_size:
        raise _refusal(group, "the group size exceeds the consumer group maximum size")


def check_room(consumer: ConsumerGroup) -> int:
    """The bytes that the members take in the store. Raises `KafkaError` GROUP_ID_NOT_FOUND if one takes too many."""
    sizes = [len(encode_consumer_member(one)) for one in consumer.members.values()]
    if max(sizes, default=0) > MAX_MEMBER_BYTES:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {quoted(consumer.group_id)} to consumer group because a member takes "
            f"{max(sizes)} bytes, at most {MAX_MEMBER_BYTES} can be stored.",
        )
    return sum(sizes)


def _refusal(group: Group, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {quoted(group.group_id)} to consumer group because {reason}.",
    )


def partitions_topics(members: Iterable[ReadMember]) -> frozenset[str]:
    """The topics of which members have partitions."""
    return frozenset(topic for one in members for topic in one.has)


def read_members(group: Group) -> list[ReadMember]:
    """Raises `KafkaError` GROUP_ID_NOT_FOUND if the members' bytes are not those of consumers."""
    try:
        return [_read(group, member) for member in group.members.values()]
    except MalformedProtocolError as problem:
        raise _refusal(group, "the embedded consumer protocol is malformed") from problem


def _read(group: Group, member: Member) -> ReadMember:
    metadata = member.metadata(group.protocol_name) or member.protocols[0].metadata
    subscription = decode_subscription(metadata)
    # A rebalance that began again has taken the assignment back, but the member may still have it.
    has = decode_assignment(member.assignment) if member.assignment else subscription.owned
    return ReadMember(member, subscription, has)


def upgraded(group: Group, policy: ConsumerPolicy, topics: Topics, now_ms: int) -> ConsumerGroup:
    """The consumer group of the same members. The classic group is as it was.

    `topics`: those of all partitions that the members have, as far as they exist. Raises as `read_members`.
    """
    consumer = ConsumerGroup(group.group_id, policy, now_ms)
    consumer.group_epoch = consumer.assignment_epoch = group.generation
    consumer.topic_names = {topic.topic_id: name for name, topic in topics.items()}
    members = [_converted(one, group.generation, topics) for one in read_members(group)]
    owners = Counter(partition for member in members for partition in partitions_of(member.assigned))
    for member in members:
        one = _without_shared(member, owners)
        consumer.put(one)
        consumer.set_session(one.member_id, now_ms + consumer.session_timeout_ms(one))
    consumer.target = {one.member_id: one.assigned for one in consumer.members.values()}
    consumer.changes.group = True
    return consumer


def _converted(read: ReadMember, generation: int, topics: Topics) -> ConsumerMember:
    member = read.member
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=read.subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=read.subscription.topics,
        member_epoch=generation,
        previous_member_epoch=generation,
        assigned={topics[name].topic_id: indexes for name, indexes in read.has.items() if name in topics},
        classic=ClassicMembership(
            session_timeout_ms=member.session_timeout_ms,
            protocols=tuple((one.name, one.metadata) for one in member.protocols),
        ),
    )


def _without_shared(member: ConsumerMember, owners: Mapping[TopicIdPartition, int]) -> ConsumerMember:
    """Of two members that may have a partition, each is to give it up before either gets it."""
    shared: dict[object, set[int]] = {}
    for topic_id, index in partitions_of(member.assigned):
        if owners[topic_id, index] > 1:
            shared.setdefault(topic_id, set()).add(index)
    if not shared:
        return member
    revoked: Assignment = {
        topic_id: frozenset(shared[topic_id]) for topic_id in member.assigned if topic_id in shared
    }
    return replace(
        member,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=difference(member.assigned, revoked),
        pending_revocation=revoked,
    )


def end_classic(group: Group, now_ms: int) -> tuple[Answer, ...]:
    """The classic group ends. What waits there is answered with REBALANCE_IN_PROGRESS: the members join again."""
    answers: list[Answer] = []
    for member in group.members.values():
        if member.awaiting_join is not None:
            content = Joined(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            answers.append(Answer(member.awaiting_join, content))
            member.awaiting_join = None
        if member.awaiting_sync is not None:
            answers.append(Answer(member.awaiting_sync, Synced(error_code=ErrorCode.REBALANCE_IN_PROGRESS)))
            member.awaiting_sync = None
    group.remove_all_pending()
    group.assignments_to_store = None
    group.replacements_to_store.clear()
    group.join_deadline_ms = group.sync_deadline_ms = None
    enter(group, GroupState.DEAD, now_ms)
    return tuple(answers)
