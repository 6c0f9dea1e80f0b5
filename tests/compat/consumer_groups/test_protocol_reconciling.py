"""How partitions change hands: revoked first, acknowledged, then given to another; epochs step by step."""

import pytest

from tests.support.consumer_group_members import (
    FENCED_MEMBER_EPOCH,
    ConsumerMember,
    RawConsumerGroup,
    accepted,
    grow_topic,
    outcome,
    refused,
)
from tests.support.consumer_group_members import topic_id as id_of
from tests.support.group_wire import UNKNOWN_MEMBER_ID
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

SHORT_REBALANCE_MS = 1_000


def rows(group: RawConsumerGroup, member: ConsumerMember) -> tuple[int, set[int], set[int]]:
    """A member's epoch, the partitions it has, and those it is to have, as they are described."""
    row = group.describe().members[member.id]
    return row.member_epoch, {index for _, index in row.assignment}, {index for _, index in row.target}


def test_partitions_move_once_they_are_revoked(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(4)
    first, second = group.joined("A", topic), group.member("B")
    everything = {topic_id: frozenset(range(4))}
    assert first.assignment == everything
    assert outcome(second.join(topic)) == accepted(second, 2, {})
    assert group.epochs() == ("Reconciling", 2, 2)
    epoch, has, kept = rows(group, first)
    assert (epoch, has, len(kept)) == (1, {0, 1, 2, 3}, 2)
    moved = {0, 1, 2, 3} - kept
    assert rows(group, second) == (2, set(), moved)
    assert outcome(second.heartbeat()) == accepted(second, 2)

    assert outcome(first.heartbeat()) == accepted(first, 1, {topic_id: kept})
    assert rows(group, first) == (1, kept, kept)
    assert outcome(first.heartbeat()) == accepted(first, 1)
    assert outcome(first.acknowledge(everything)) == accepted(first, 1)
    assert outcome(second.heartbeat()) == accepted(second, 2)
    assert group.epochs() == ("Reconciling", 2, 2)

    assert outcome(first.acknowledge()) == accepted(first, 2)
    assert group.epochs() == ("Reconciling", 2, 2)
    assert outcome(second.heartbeat()) == accepted(second, 2, {topic_id: moved})
    assert group.epochs() == ("Stable", 2, 2)
    assert outcome(second.heartbeat()) == accepted(second, 2)
    assert outcome(second.acknowledge()) == accepted(second, 2)


def test_lost_answer_is_given_again(group: RawConsumerGroup) -> None:
    """The previous epoch is accepted from a member whose partitions it keeps: an answer was lost."""
    topic, topic_id = group.new_topic(4)
    first = group.joined("A", topic)
    group.joined("B", topic)
    first.heartbeat()
    kept = sorted(first.assignment[topic_id])
    assert outcome(first.acknowledge()) == accepted(first, 2)
    fenced = refused(FENCED_MEMBER_EPOCH)
    assert outcome(first.heartbeat(epoch=1, owned={topic_id: range(4)})) == fenced
    assert outcome(first.heartbeat(epoch=1)) == fenced
    for owned in ({topic_id: kept}, {topic_id: kept[:1]}, {}):
        assert outcome(first.heartbeat(epoch=1, owned=owned)) == accepted(first, 2)
    assert outcome(first.heartbeat(epoch=3)) == fenced
    assert outcome(first.heartbeat(epoch=2)) == accepted(first, 2)


def test_epoch_before_the_previous_is_fenced(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(4)
    first, second = group.joined("A", topic), group.joined("B", topic)
    group.settle(first, second)
    second.leave()
    assert outcome(first.heartbeat()) == accepted(first, 3, {topic_id: range(4)})
    kept = {topic_id: sorted(second.assignment.get(topic_id, frozenset()))}
    assert outcome(first.heartbeat(epoch=1, owned=kept)) == refused(FENCED_MEMBER_EPOCH)
    assert outcome(first.heartbeat(epoch=2)) == refused(FENCED_MEMBER_EPOCH)
    assert outcome(first.heartbeat(epoch=3)) == accepted(first, 3)


@pytest.mark.usefixtures("only_kafscale")
def test_member_that_revokes_joins_again(group: RawConsumerGroup) -> None:
    """It has given up all by that, as in Kafka 4.2; Kafka 4.1 fenced it."""
    topic, topic_id = group.new_topic(4)
    first, second = group.joined("A", topic), group.joined("B", topic)
    first.heartbeat()
    kept = first.assignment
    assert outcome(first.join(topic)) == accepted(first, 2, kept)
    other = set(range(4)) - kept[topic_id]
    assert outcome(second.heartbeat()) == accepted(second, 2, {topic_id: other})


def test_partitions_of_a_leaver_are_given_at_the_next_heartbeat(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(4)
    first, second = group.joined("A", topic), group.joined("B", topic)
    group.settle(first, second)
    second.leave()
    assert group.epochs()[1] == 3  # Kafka assigns with the next heartbeat, not before
    assert outcome(first.heartbeat()) == accepted(first, 3, {topic_id: range(4)})
    assert group.epochs() == ("Stable", 3, 3)


def test_third_member_joins_while_the_first_revokes(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(6)
    first, second = group.joined("A", topic), group.joined("B", topic)
    first.heartbeat()
    third = group.joined("C", topic)
    assert (third.epoch, third.assignment) == (3, {})
    assert group.epochs() == ("Reconciling", 3, 3)
    # one step for each epoch that it is behind: what it acknowledges is of the second
    reply = first.acknowledge()
    _, _, kept = rows(group, first)
    assert outcome(reply) == accepted(first, 2, {topic_id: kept})
    assert outcome(first.heartbeat(epoch=1)) == refused(FENCED_MEMBER_EPOCH)
    assert outcome(first.acknowledge()) == accepted(first, 3)
    assert second.heartbeat().member_epoch == 3
    assert third.heartbeat().member_epoch == 3
    assert group.epochs() == ("Stable", 3, 3)
    owned = [member.assignment[topic_id] for member in (first, second, third)]
    assert sorted(index for one in owned for index in one) == [0, 1, 2, 3, 4, 5]


def test_subset_is_an_acknowledgement(group: RawConsumerGroup) -> None:
    """A member that has not begun with all it keeps has revoked what it must."""
    topic, topic_id = group.new_topic(4)
    first, _ = group.joined("A", topic), group.joined("B", topic)
    first.heartbeat()
    kept = first.assignment
    assert outcome(first.acknowledge({topic_id: frozenset(sorted(kept[topic_id])[:1])})) == accepted(first, 2)
    assert rows(group, first)[1] == kept[topic_id]


def test_what_is_revoked_stays_revoked(group: RawConsumerGroup) -> None:
    """The other leaves before the acknowledgement: it comes first all the same."""
    topic, topic_id = group.new_topic(4)
    first, second = group.joined("A", topic), group.joined("B", topic)
    first.heartbeat()
    second.leave()
    assert group.epochs()[1] == 3  # Kafka assigns with the next heartbeat, not before
    assert outcome(first.acknowledge({topic_id: frozenset(range(4))})) == accepted(first, 1)
    assert group.epochs() == ("Reconciling", 3, 3)
    assert outcome(first.acknowledge()) == accepted(first, 3)
    assert rows(group, first) == (3, set(first.assignment[topic_id]), {0, 1, 2, 3})
    assert outcome(first.heartbeat()) == accepted(first, 3, {topic_id: range(4)})
    assert group.epochs() == ("Stable", 3, 3)


def test_member_that_does_not_revoke_in_time_is_removed(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(4)
    first = group.joined("A", topic, rebalance_timeout_ms=SHORT_REBALANCE_MS)
    second = group.joined("B", topic)
    first.heartbeat()
    wait_until(
        lambda: outcome(first.heartbeat(owned={topic_id: range(4)})) == refused(UNKNOWN_MEMBER_ID),
        "the member is removed",
    )
    assert group.epochs()[1] == 3  # Kafka assigns with the next heartbeat, not before
    assert outcome(second.heartbeat()) == accepted(second, 3, {topic_id: range(4)})


def test_new_partitions_are_assigned(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    member = group.joined("A", topic)
    grow_topic(group.wire, topic, 4)
    reply = member.news()
    assert outcome(reply) == accepted(member, 2, {topic_id: range(4)})
    assert group.epochs() == ("Stable", 2, 2)


def test_topic_that_is_made_later_is_assigned(group: RawConsumerGroup) -> None:
    name = unique_name("later")
    member = group.joined("A", name)
    assert member.assignment == {}
    assert outcome(member.heartbeat()) == accepted(member, 1)
    create_topic(group.broker, name, 2)
    reply = member.news()
    assert outcome(reply) == accepted(member, 2, {id_of(group.wire, name): range(2)})


def test_deleted_topic_is_revoked(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(2)
    kept, kept_id = group.new_topic(1)
    member = group.joined("A", topic, kept)
    group.delete_topic(topic)
    reply = member.news()
    assert outcome(reply) == accepted(member, 1, {kept_id: [0]})
    assert group.epochs() == ("Reconciling", 2, 2)
    assert outcome(member.acknowledge()) == accepted(member, 2)
    create_topic(group.broker, topic, 2)
    again = id_of(group.wire, topic)
    reply = member.news()
    assert outcome(reply) == accepted(member, 3, {kept_id: [0], again: range(2)})


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_evenly_and_keep_what_they_have(group: RawConsumerGroup, assignor: str) -> None:
    topic, topic_id = group.new_topic(6)
    members = [group.joined(name, topic, assignor=assignor) for name in "ABC"]

    def shares() -> list[frozenset[int]]:
        group.settle(*members)
        return [member.assignment[topic_id] for member in members]

    before = shares()
    assert sorted(map(len, before)) == [2, 2, 2]
    members.pop().leave()
    after = shares()
    assert sorted(map(len, after)) == [3, 3]
    if assignor == "uniform":
        assert all(one <= other for one, other in zip(before, after, strict=False))
    else:
        assert after == [frozenset({0, 1, 2}), frozenset({3, 4, 5})]
