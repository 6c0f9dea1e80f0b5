"""Classic and consumer protocol in one group id: empty groups change their kind, groups with members are mixed."""

import struct

from tests.support.consumer_group_members import ConsumerMember, RawConsumerGroup, accepted, outcome, refused
from tests.support.group_apis import commit, committed, list_groups
from tests.support.group_wire import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    Member,
    connect_strictly,
    subscription,
    unique_instance,
)


def classic_member(group: RawConsumerGroup, topic: str, **options: object) -> Member:
    """A member of the classic protocol on the same connection."""
    return Member(wire=group.wire, group=group.name, protocols={"range": subscription(topic)}, **options)  # type: ignore[arg-type]


def classic_assignment(topic: str, *partitions: int) -> bytes:
    """The embedded consumer protocol's assignment, version 0."""
    return (
        struct.pack(">hih", 0, 1, len(topic))
        + topic.encode()
        + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        + struct.pack(">i", -1)
    )


def given(topic: str, assignment: bytes) -> set[int]:
    """The partitions of the only topic in an assignment; none is an empty set."""
    _, topics = struct.unpack_from(">hi", assignment)
    if topics == 0:
        return set()
    start = 8 + len(topic)
    assert (topics, assignment[8:start]) == (1, topic.encode()), assignment
    (count,) = struct.unpack_from(">i", assignment, start)
    return set(struct.unpack_from(f">{count}i", assignment, start + 4))


def kind(group: RawConsumerGroup) -> tuple[str, str]:
    row = list_groups(group.wire)[group.name]
    return row.group_type, row.group_state


# --- empty groups


def test_empty_classic_group_becomes_a_consumer_group(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    commit(group.wire, group.name, {(topic, 0): 7})
    assert kind(group) == ("classic", "Empty")
    stranger = group.member("A")
    assert outcome(stranger.heartbeat(epoch=3)) == refused(GROUP_ID_NOT_FOUND)
    assert outcome(stranger.leave()) == refused(GROUP_ID_NOT_FOUND)
    member = group.member("A")
    assert outcome(member.join(topic)) == accepted(member, 1, {topic_id: range(2)})
    assert kind(group) == ("consumer", "Stable")
    assert committed(group.wire, group.name, [(topic, 0)])[topic, 0].offset == 7


def test_empty_consumer_group_becomes_a_classic_group(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic()
    member = group.joined("A", topic)
    commit(group.wire, group.name, {(topic, 0): 7}, generation=1, member_id=member.id, version=9)
    member.leave()
    old = classic_member(group, topic)
    assert old.enter().generation_id == 1
    assert old.leads
    assert bytes(old.sync({old.id: b"share"}).assignment) == b"share"
    assert kind(group) == ("classic", "Stable")
    assert committed(group.wire, group.name, [(topic, 0)])[topic, 0].offset == 7
    assert old.leave() == NONE
    assert outcome(member.join(topic)) == accepted(member, 1, {topic_id: [0]})
    assert kind(group) == ("consumer", "Stable")


def test_group_of_another_protocol_type_is_refused(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    worker = classic_member(group, topic, protocol_type="connect")
    worker.enter()
    worker.sync({worker.id: b"work"})
    member = group.member("A")
    assert outcome(member.join(topic)) == refused(GROUP_ID_NOT_FOUND)
    assert outcome(member.heartbeat(epoch=1)) == refused(GROUP_ID_NOT_FOUND)
    assert outcome(member.leave()) == refused(GROUP_ID_NOT_FOUND)
    assert kind(group) == ("classic", "Stable")
    assert worker.heartbeat() == NONE


# --- groups of members of both protocols (group.consumer.migration.policy=bidirectional)


def mixed(group: RawConsumerGroup, topic: str) -> tuple[ConsumerMember, Member]:
    """A consumer member, and a classic member that has joined and synced: two partitions each."""
    new, old = group.joined("A", topic), classic_member(group, topic)
    assert old.join().error_code == MEMBER_ID_REQUIRED
    reply = old.join()
    if reply.error_code == MEMBER_ID_REQUIRED:
        old.id = reply.member_id
        reply = old.join()
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (NONE, 2, "range")
    return new, old


def test_classic_member_joins_a_consumer_group(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(4)
    new, old = mixed(group, topic)
    assert not old.leads  # nobody does: the coordinator assigns
    assert given(topic, bytes(old.sync({}).assignment)) == set()
    assert old.heartbeat() == NONE
    row = group.describe().members[old.id]
    assert (row.member_type, row.member_epoch, row.names) == (0, 2, (topic,))
    new.heartbeat()
    new.acknowledge()
    assert old.heartbeat() == REBALANCE_IN_PROGRESS
    assert old.join().generation_id == 2
    assert given(topic, bytes(old.sync({}).assignment)) == {0, 1, 2, 3} - new.assignment[topic_id]
    assert group.epochs() == ("Stable", 2, 2)
    partition = min({0, 1, 2, 3} - new.assignment[topic_id])
    assert old.commit({(topic, partition): 3}) == {(topic, partition): NONE}
    for generation in (1, 3):
        assert (
            old.commit({(topic, partition): 3}, generation=generation)[topic, partition] == ILLEGAL_GENERATION
        )
    assert old.heartbeat(generation=7) == ILLEGAL_GENERATION
    assert old.leave() == NONE
    assert new.heartbeat().member_epoch == 3


def test_classic_member_that_fits_no_consumer_group_is_refused(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(4)
    group.joined("A", topic)
    for one in (
        classic_member(group, topic, protocol_type="connect"),
        Member(wire=group.wire, group=group.name, protocols={}),
    ):
        reply = one.join()
        if reply.error_code == MEMBER_ID_REQUIRED:
            one.id = reply.member_id
            reply = one.join()
        assert reply.error_code == INCONSISTENT_GROUP_PROTOCOL


def test_consumer_member_joins_a_classic_group(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(4)
    old = classic_member(group, topic)
    old.enter()
    assert old.sync({old.id: classic_assignment(topic, 0, 1, 2, 3)}).error_code == NONE
    new = group.member("A")
    assert outcome(new.join(topic)) == accepted(new, 2, {})
    assert kind(group) == ("consumer", "Reconciling")
    described = group.describe().members
    assert described[old.id].assignment == frozenset((topic, partition) for partition in range(4))
    assert (described[old.id].member_type, described[old.id].member_epoch) == (0, 1)
    assert old.heartbeat() == REBALANCE_IN_PROGRESS
    assert old.join().generation_id == 2
    kept = given(topic, bytes(old.sync({}).assignment))
    assert len(kept) == 2
    assert outcome(new.heartbeat()) == accepted(new, 2, {topic_id: {0, 1, 2, 3} - kept})
    assert group.epochs() == ("Stable", 2, 2)


def test_group_of_classic_members_alone_is_classic_again(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(4)
    new, old = mixed(group, topic)
    assert outcome(new.leave())[0] == NONE
    assert kind(group) == ("classic", "PreparingRebalance")
    assert old.heartbeat() == REBALANCE_IN_PROGRESS
    assert old.join().generation_id == 3
    assert old.leads


def test_static_classic_member_is_replaced_by_a_consumer_member(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(4)
    instance = unique_instance()
    group.joined("A", topic)
    with connect_strictly(group.broker) as wire:
        old = Member(wire=wire, group=group.name, instance=instance, protocols={"range": subscription(topic)})
        assert old.join().error_code == NONE
        second = classic_member(group, topic, instance=instance)
        assert second.join().error_code == NONE
        assert old.sync({}).error_code == FENCED_INSTANCE_ID
        assert old.heartbeat() == FENCED_INSTANCE_ID
    successor = group.member("B", instance_id=instance)
    assert outcome(successor.join(topic))[:3] == accepted(successor, 2)[:3]
    assert second.heartbeat() == FENCED_INSTANCE_ID
