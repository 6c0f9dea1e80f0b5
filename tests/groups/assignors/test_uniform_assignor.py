"""The assignor `uniform` among members that subscribe to the same topics.

The examples are what Apache Kafka's tests of the optimized uniform assignment expect.
"""

from hypothesis import given

from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.assignors.uniform_assignor import assign
from kafscale.groups.modern.assignment import Assignment, count, difference
from tests.groups.assignors.members import (
    GONE,
    T1,
    T2,
    T3,
    Counts,
    Members,
    counts_of_topics,
    groups,
    moved_partitions,
    owning,
    partitions,
    subscribed,
)


def test_counts_are_even_over_all_topics() -> None:
    assert assign({"A": subscribed(T1, T2), "B": subscribed(T1, T2)}, {T1: 2, T2: 3}) == {
        "A": partitions({T1: {0, 1}, T2: {0}}),
        "B": partitions({T2: {1, 2}}),
    }


def test_members_beyond_the_partitions_get_none() -> None:
    assert assign({name: subscribed(T3) for name in "ABC"}, {T3: 2}) == {
        "A": partitions({T3: {0}}),
        "B": partitions({T3: {1}}),
        "C": {},
    }


def test_uneven_owners_are_levelled() -> None:
    members = {
        "A": subscribed(T1, T2, owned={T1: {0, 1}, T2: {0, 1}}),
        "B": subscribed(T1, T2, owned={T1: {2}, T2: {2}}),
    }
    assert assign(members, {T1: 3, T2: 3}) == {
        "A": partitions({T1: {0, 1}, T2: {0}}),
        "B": partitions({T1: {2}, T2: {1, 2}}),
    }


def test_new_partitions_move_no_old_ones() -> None:
    members = {
        "A": subscribed(T1, T2, owned={T1: {0}, T2: {0, 2}}),
        "B": subscribed(T1, T2, owned={T1: {1, 2}, T2: {1}}),
    }
    assert assign(members, {T1: 5, T2: 6}) == {
        "A": partitions({T1: {0, 3, 4}, T2: {0, 2, 3}}),
        "B": partitions({T1: {1, 2}, T2: {1, 4, 5}}),
    }


def test_a_member_that_joins_gets_what_others_have_too_much() -> None:
    members = {
        "A": subscribed(T1, T2, owned={T1: {0, 2}, T2: {0}}),
        "B": subscribed(T1, T2, owned={T1: {1}, T2: {1, 2}}),
        "C": subscribed(T1, T2),
    }
    assert assign(members, {T1: 3, T2: 3}) == {
        "A": partitions({T1: {0, 2}}),
        "B": partitions({T1: {1}, T2: {1}}),
        "C": partitions({T2: {0, 2}}),
    }


def test_what_a_member_leaves_is_shared_out() -> None:
    members = {
        "A": subscribed(T1, T2, owned={T1: {0}, T2: {0}}),
        "B": subscribed(T1, T2, owned={T1: {1}, T2: {1}}),
    }
    assigned = assign(members, {T1: 3, T2: 3})
    assert moved_partitions(members, assigned) == 0
    assert [count(assignment) for assignment in assigned.values()] == [3, 3]


def test_partitions_of_topics_left_behind_are_dropped() -> None:
    members = {
        "A": subscribed(T2, owned={T1: {0}, T2: {0}}),
        "B": subscribed(T2, owned={T1: {1}, T2: {1}}),
    }
    expected = {"A": partitions({T2: {0}}), "B": partitions({T2: {1}})}
    assert assign(members, {T1: 2, T2: 2}) == expected


def test_any_member_may_have_the_odd_partition() -> None:
    """KAFKA-18688: before it, the first members had to have one more, and others lost theirs."""
    owned = {name: {T1: {number}} for number, name in enumerate("ABC")}
    owned["C"][T1].add(3)
    members = {name: subscribed(T1, owned=owned[name]) for name in "ABC"}
    assert assign(members, {T1: 4}) == {name: partitions(owned[name]) for name in "ABC"}


def test_a_static_member_keeps_its_partitions_under_a_new_id() -> None:
    members = {"A": subscribed(T1, instance="one"), "B": subscribed(T1, instance="two"), "C": subscribed(T1)}
    before = assign(members, {T1: 7})
    after = owning(members, before)
    after["Z"] = after.pop("A")
    assigned = assign(after, {T1: 7})
    assert assigned == {"Z": before["A"], "B": before["B"], "C": before["C"]}


def test_of_two_that_claim_a_partition_the_second_loses() -> None:
    members = {
        "A": subscribed(T1, owned={T1: {0, 1}}),
        "B": subscribed(T1, owned={T1: {1, 2}}),
    }
    assert assign(members, {T1: 4}) == {"A": partitions({T1: {0, 1}}), "B": partitions({T1: {2, 3}})}


def test_partitions_that_are_gone_are_forgotten() -> None:
    members = {
        "A": subscribed(T1, owned={T1: {0, 5, -1}, GONE: {0}}),
        "B": subscribed(T1, owned={T1: {1}}),
    }
    assert assign(members, {T1: 2}) == {"A": partitions({T1: {0}}), "B": partitions({T1: {1}})}


@given(groups(same_topics=True), counts_of_topics)
def test_counts_differ_by_one_at_most(members: Members, counts: Counts) -> None:
    sizes = [count(assignment) for assignment in assign(members, counts).values()]
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(groups(same_topics=True), groups(same_topics=True), counts_of_topics, counts_of_topics)
def test_no_even_assignment_moves_fewer_partitions(
    before: Members, after: Members, old_counts: Counts, counts: Counts
) -> None:
    """From a group to another one: members left, joined, subscribed to other topics; topics grew and shrank."""
    members = owning(after, assign(before, old_counts))
    assigned = assign(members, counts)
    owned = [_valid_claims(member, counts) for member in members.values()]
    if members:
        total = sum(counts[topic_id] for topic_id in next(iter(members.values())).topic_ids)
        smaller, larger_quotas = divmod(total, len(members))
        above = sum(number > smaller for number in owned)
        most_that_can_stay = sum(min(number, smaller) for number in owned) + min(above, larger_quotas)
        stay = [_stay(member.owned, assigned[name]) for name, member in members.items()]
        assert sum(stay) == most_that_can_stay


def _valid_claims(member: Subscription, counts: Counts) -> int:
    """The number of owned partitions that exist and that the member still subscribes to."""
    return sum(
        len(claimed & set(range(counts[topic_id])))
        for topic_id, claimed in member.owned.items()
        if topic_id in member.topic_ids
    )


def _stay(owned: Assignment, assigned: Assignment) -> int:
    return count(owned) - count(difference(owned, assigned))
