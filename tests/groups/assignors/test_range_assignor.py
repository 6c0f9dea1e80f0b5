"""The assignor `range`. The examples are what Apache Kafka's RangeAssignorTest expects."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.groups.assignors.range_assignor import assign
from kafscale.groups.assignors.subscription import Subscription
from tests.groups.assignors.members import (
    T1,
    T2,
    T3,
    TOPICS,
    Counts,
    Members,
    counts_of_topics,
    groups,
    owning,
    partitions,
    subscribed,
)


def test_each_topic_is_cut_into_ranges() -> None:
    assigned = assign({"A": subscribed(T1, T3), "B": subscribed(T1, T3)}, {T1: 3, T3: 2})
    assert assigned == {"A": partitions({T1: {0, 1}, T3: {0}}), "B": partitions({T1: {2}, T3: {1}})}


def test_only_subscribers_share_a_topic() -> None:
    members = {"A": subscribed(T1, T2), "B": subscribed(T3), "C": subscribed(T2, T3)}
    assert assign(members, {T1: 3, T2: 3, T3: 2}) == {
        "A": partitions({T1: {0, 1, 2}, T2: {0, 1}}),
        "B": partitions({T3: {0}}),
        "C": partitions({T2: {2}, T3: {1}}),
    }


def test_members_beyond_the_partitions_get_none() -> None:
    assert assign({name: subscribed(T1, T3) for name in "ABC"}, {T1: 3, T3: 2}) == {
        "A": partitions({T1: {0}, T3: {0}}),
        "B": partitions({T1: {1}, T3: {1}}),
        "C": partitions({T1: {2}}),
    }


def test_a_member_that_joins_late_finds_no_partition_left() -> None:
    first = {"A": subscribed(T1, T2), "B": subscribed(T1, T2)}
    counts = {T1: 2, T2: 2}
    before = assign(first, counts)
    assert assign({**owning(first, before), "C": subscribed(T1, T2)}, counts) == {**before, "C": {}}


def test_a_member_that_joins_gets_the_last_range() -> None:
    first = {"A": subscribed(T1, T2), "B": subscribed(T1, T2)}
    members = {**owning(first, assign(first, {T1: 3, T2: 3})), "C": subscribed(T1, T2)}
    expected = [partitions({T1: {number}, T2: {number}}) for number in range(3)]
    assert list(assign(members, {T1: 3, T2: 3}).values()) == expected


def test_new_partitions_lengthen_the_ranges() -> None:
    first = {"A": subscribed(T1, T2), "B": subscribed(T1, T2)}
    members = owning(first, assign(first, {T1: 3, T2: 3}))
    assert assign(members, {T1: 4, T2: 4}) == {
        "A": partitions({T1: {0, 1}, T2: {0, 1}}),
        "B": partitions({T1: {2, 3}, T2: {2, 3}}),
    }


def test_a_static_member_keeps_its_range_under_a_new_id() -> None:
    members = {"A": subscribed(T1, instance="instanceA"), "B": subscribed(T1, instance="instanceB")}
    before = assign(members, {T1: 3})
    after = assign({"B": members["B"], "Z": subscribed(T1, instance="instanceA")}, {T1: 3})
    assert before["A"] == partitions({T1: {0, 1}})
    assert after == {"Z": before["A"], "B": before["B"]}


def test_static_members_come_before_the_others() -> None:
    members = {
        "A": subscribed(T1),
        "B": subscribed(T1, instance="instance2"),
        "C": subscribed(T1, instance="instance1"),
    }
    assert assign(members, {T1: 5}) == {
        "C": partitions({T1: {0, 1}}),
        "B": partitions({T1: {2, 3}}),
        "A": partitions({T1: {4}}),
    }


@given(groups(), counts_of_topics)
def test_ranges_are_whole_and_differ_by_one(members: Members, counts: Counts) -> None:
    assigned = assign(members, counts)
    for topic_id in TOPICS:
        ranges = [
            sorted(assigned[name].get(topic_id, ()))
            for name, member in members.items()
            if topic_id in member.topic_ids
        ]
        assert all(numbers == list(range(numbers[0], numbers[-1] + 1)) for numbers in ranges if numbers)
        sizes = [len(numbers) for numbers in ranges]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(groups(same_topics=True), st.integers(0, 20))
def test_topics_of_one_size_are_copartitioned(members: Members, size: int) -> None:
    for assignment in assign(members, dict.fromkeys(TOPICS, size)).values():
        assert len(set(assignment.values())) <= 1


@given(groups(), counts_of_topics)
def test_what_members_own_has_no_part(members: Members, counts: Counts) -> None:
    fresh = {name: Subscription(one.topic_ids, one.instance_id, {}) for name, one in members.items()}
    assert assign(members, counts) == assign(fresh, counts)
