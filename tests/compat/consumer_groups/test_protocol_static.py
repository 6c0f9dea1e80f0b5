"""Static members of consumer groups: one member for each instance id, which may go and return."""

from tests.support.consumer_group_members import (
    COMES_BACK,
    FENCED_MEMBER_EPOCH,
    INVALID_REQUEST,
    LEAVES,
    UNRELEASED_INSTANCE_ID,
    RawConsumerGroup,
    accepted,
    outcome,
    refused,
)
from tests.support.group_apis import delete_groups
from tests.support.group_wire import (
    FENCED_INSTANCE_ID,
    NON_EMPTY_GROUP,
    UNKNOWN_MEMBER_ID,
    unique_instance,
)


def test_instance_id_in_use_is_refused(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    instance = unique_instance()
    first, second = group.member("A", instance_id=instance), group.member("B", instance_id=instance)
    assert outcome(first.join(topic)) == accepted(first, 1, {topic_id: range(2)})
    assert outcome(second.join(topic)) == refused(UNRELEASED_INSTANCE_ID)
    # nor may the same member join again
    assert outcome(first.join(topic)) == refused(UNRELEASED_INSTANCE_ID)
    assert outcome(first.heartbeat(epoch=1)) == accepted(first, 1)
    assert outcome(first.heartbeat(instance_id=instance)) == accepted(first, 1)
    assert group.describe().members[first.id].instance_id == instance


def test_member_id_of_another_is_fenced(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    instance = unique_instance()
    group.joined("A", topic, instance_id=instance)
    other = group.member("B", instance_id=instance)
    for epoch in (1, LEAVES, COMES_BACK):
        assert outcome(other.heartbeat(epoch=epoch, instance_id=instance)) == refused(FENCED_INSTANCE_ID)
    assert outcome(other.heartbeat(epoch=1)) == refused(UNKNOWN_MEMBER_ID)


def test_static_member_goes_and_its_successor_has_its_partitions(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    instance = unique_instance()
    first = group.joined("A", topic, instance_id=instance)
    assert outcome(first.leave(COMES_BACK)) == accepted(first, COMES_BACK)
    assert group.epochs() == ("Reconciling", 1, 1)
    assert group.describe().members[first.id].member_epoch == COMES_BACK
    assert outcome(first.leave(COMES_BACK)) == accepted(first, COMES_BACK)
    assert outcome(first.heartbeat(epoch=1)) == refused(FENCED_MEMBER_EPOCH)
    assert outcome(first.heartbeat(epoch=1, instance_id=instance)) == refused(FENCED_MEMBER_EPOCH)

    successor = group.member("B", instance_id=instance)
    assert outcome(successor.join(topic)) == accepted(successor, 1, {topic_id: range(2)})
    assert group.epochs() == ("Stable", 1, 1)
    assert set(group.describe().members) == {successor.id}
    assert outcome(first.heartbeat(epoch=1, instance_id=instance)) == refused(FENCED_INSTANCE_ID)
    assert outcome(first.heartbeat(epoch=1)) == refused(UNKNOWN_MEMBER_ID)
    assert outcome(successor.heartbeat()) == accepted(successor, 1)


def test_static_member_returns_under_its_own_id(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    member = group.joined("A", topic, instance_id=unique_instance())
    member.leave(COMES_BACK)
    assert outcome(member.join(topic)) == accepted(member, 1, {topic_id: range(2)})
    assert group.epochs() == ("Stable", 1, 1)


def test_successor_with_another_subscription_begins_an_epoch(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    other, other_id = group.new_topic()
    instance = unique_instance()
    group.joined("A", topic, instance_id=instance).leave(COMES_BACK, instance_id=instance)
    successor = group.member("B", instance_id=instance)
    assert outcome(successor.join(topic, other)) == accepted(
        successor, 2, {topic_id: range(2), other_id: [0]}
    )


def test_partitions_wait_for_the_member_that_returns(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    away = group.joined("A", topic, instance_id=unique_instance())
    away.leave(COMES_BACK)
    other = group.joined("B", topic)
    assert other.assignment == {}
    assert group.epochs() == ("Reconciling", 2, 2)
    reply = away.join(topic)
    kept = away.assignment[topic_id]
    assert outcome(reply) == accepted(away, 2, {topic_id: kept})
    assert len(kept) == 1
    assert outcome(other.heartbeat()) == accepted(other, 2, {topic_id: {0, 1} - kept})
    assert group.epochs() == ("Stable", 2, 2)


def test_static_member_leaves_for_good(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    instance = unique_instance()
    first = group.joined("A", topic, instance_id=instance)
    assert outcome(first.leave(LEAVES)) == accepted(first, LEAVES)
    assert group.epochs() == ("Empty", 2, 1)
    second = group.joined("B", topic, instance_id=instance)
    assert second.epoch == 3
    second.leave(COMES_BACK)
    assert delete_groups(group.wire, [group.name]) == {group.name: NON_EMPTY_GROUP}
    assert outcome(second.leave(LEAVES, instance_id=instance)) == accepted(second, LEAVES)
    assert group.epochs()[0] == "Empty"


def test_dynamic_member_cannot_go_for_a_while(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    assert outcome(member.leave(COMES_BACK)) == refused(INVALID_REQUEST)
    assert outcome(member.leave(COMES_BACK, instance_id="other")) == refused(UNKNOWN_MEMBER_ID)


def test_static_member_that_stays_away_is_removed(group: RawConsumerGroup) -> None:
    group.set_config("consumer.session.timeout.ms", 500)
    topic, topic_id = group.new_topic(2)
    away = group.joined("A", topic, instance_id=unique_instance())
    away.leave(COMES_BACK)
    group.await_members(0)
    assert group.epochs() == ("Empty", 2, 1)
    successor = group.member("B", instance_id=away.instance_id)
    assert outcome(successor.join(topic)) == accepted(successor, 3, {topic_id: range(2)})
