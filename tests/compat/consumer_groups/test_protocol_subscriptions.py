"""Changes of a member's subscription, and of how the group's partitions are assigned."""

from tests.support.consumer_group_members import RawConsumerGroup, accepted, outcome


def test_subscription_changes_by_revoking_first(group: RawConsumerGroup) -> None:
    (left, left_id), (right, right_id) = group.new_topic(2), group.new_topic(2)
    member = group.joined("A", left)
    assert outcome(member.heartbeat(names=[])) == accepted(member, 1, {})
    assert group.epochs() == ("Reconciling", 2, 2)
    assert outcome(member.acknowledge()) == accepted(member, 2)
    assert outcome(member.heartbeat(names=[right])) == accepted(member, 3, {right_id: range(2)})
    assert outcome(member.heartbeat(names=[right])) == accepted(member, 3)
    assert outcome(member.heartbeat(names=[left, right])) == accepted(
        member, 4, {left_id: range(2), right_id: range(2)}
    )
    assert group.epochs() == ("Stable", 4, 4)
    assert set(group.describe().members[member.id].names) == {left, right}


def test_members_get_only_what_they_subscribe(group: RawConsumerGroup) -> None:
    (left, left_id), (right, right_id) = group.new_topic(2), group.new_topic(2)
    first, second, both = group.joined("A", left), group.joined("B", right), group.joined("C", left, right)
    group.settle(first, second, both)
    assert set(first.assignment) <= {left_id}
    assert set(second.assignment) <= {right_id}
    given = [
        (topic, index)
        for member in (first, second, both)
        for topic, indexes in member.assignment.items()
        for index in indexes
    ]
    assert sorted(given) == sorted((topic, index) for topic in (left_id, right_id) for index in range(2))


def test_assignor_is_what_most_members_prefer(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(3)
    first = group.joined("A", topic)
    assert group.describe().assignor == "uniform"
    assert outcome(first.heartbeat(assignor="range")) == accepted(first, 1)
    assert group.describe().assignor == "range"
    second, third = group.joined("B", topic, assignor="uniform"), group.joined("C", topic, assignor="uniform")
    assert group.describe().assignor == "uniform"
    assert outcome(second.heartbeat(assignor="range")) == accepted(second, second.epoch)
    assert group.describe().assignor == "range"
    assert third.heartbeat().error_code == 0
    # a change of who prefers what assigns nothing by itself
    assert group.epochs()[1] == 3


def test_rack_and_timeout_change_without_an_epoch(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(3)
    member = group.joined("A", topic)
    assert outcome(member.heartbeat(rack_id="rack-1")) == accepted(member, 1)
    assert outcome(member.heartbeat(rebalance_timeout_ms=1234)) == accepted(member, 1)
    assert group.describe().members[member.id].rack_id == "rack-1"
    assert group.epochs() == ("Stable", 1, 1)
