"""The assignor `uniform` among members that subscribe to different topics.

The examples are what Apache Kafka's UniformHeterogeneousAssignmentBuilderTest expects.
"""

import uuid
from collections.abc import Iterable, Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kafscale.groups.assignors.uniform_assignor import assign
from kafscale.groups.modern.assignment import Assignment, count
from tests.groups.assignors.members import (
    T1,
    T2,
    T3,
    T4,
    Counts,
    Members,
    check_idempotent,
    counts_of_topics,
    groups,
    moved_partitions,
    owning,
    partitions,
    subscribed,
)


def test_who_has_fewer_topics_gets_more_of_them() -> None:
    assert assign({"A": subscribed(T1, T3), "B": subscribed(T3)}, {T1: 3, T3: 6}) == {
        "A": partitions({T1: {0, 1, 2}, T3: {4}}),
        "B": partitions({T3: {0, 1, 2, 3, 5}}),
    }


def test_members_beyond_the_partitions_get_none() -> None:
    members = {"A": subscribed(T3), "B": subscribed(T3), "C": subscribed(T1)}
    expected = {"A": partitions({T3: {0}}), "B": {}, "C": partitions({T1: {0, 1}})}
    assert assign(members, {T1: 2, T3: 1}) == expected


def test_uneven_owners_are_levelled() -> None:
    members = {
        "A": subscribed(T1, owned={T1: {0, 1, 2}}),
        "B": subscribed(T1, T2, owned={T1: {3}, T2: {0}}),
        "C": subscribed(T1, T2, T3, owned={T1: {4, 5}, T2: {1, 2, 3}, T3: {0, 1, 2, 3}}),
    }
    assert assign(members, {T1: 6, T2: 4, T3: 4}) == {
        "A": partitions({T1: {0, 1, 2, 5}}),
        "B": partitions({T1: {3}, T2: {0, 1, 2, 3}}),
        "C": partitions({T1: {4}, T3: {0, 1, 2, 3}}),
    }


def test_new_partitions_move_no_old_ones() -> None:
    members = {
        "A": subscribed(T1, T3, owned={T1: {0, 1, 2, 3}, T3: {0, 1}}),
        "B": subscribed(T1, T2, T3, T4, owned={T2: {0, 1, 2}, T4: {0, 1, 2}}),
    }
    assert assign(members, {T1: 6, T2: 5, T3: 3, T4: 3}) == {
        "A": partitions({T1: {0, 1, 2, 3, 4, 5}, T3: {0, 1, 2}}),
        "B": partitions({T2: {0, 1, 2, 3, 4}, T4: {0, 1, 2}}),
    }


def test_a_member_joins_while_topics_grow() -> None:
    members = {
        "A": subscribed(T1, owned={T1: {0, 2}, T2: {0}}),
        "B": subscribed(T1, T2, owned={T1: {1}, T2: {1, 2}}),
        "C": subscribed(T1, T2),
    }
    assert assign(members, {T1: 6, T2: 7}) == {
        "A": partitions({T1: {0, 2, 3, 4, 5}}),
        "B": partitions({T1: {1}, T2: {1, 2, 6}}),
        "C": partitions({T2: {0, 3, 4, 5}}),
    }


def test_what_a_member_leaves_goes_to_subscribers() -> None:
    members = {
        "A": subscribed(T1, T3, owned={T1: {0, 1, 2}, T3: {0, 1}}),
        "B": subscribed(T2, owned={T2: {3, 4, 5, 6}}),
    }
    assert assign(members, {T1: 3, T2: 8, T3: 3}) == {
        "A": partitions({T1: {0, 1, 2}, T3: {0, 1, 2}}),
        "B": partitions({T2: set(range(8))}),
    }


def test_a_topic_left_behind_goes_to_who_still_subscribes() -> None:
    members = {
        "A": subscribed(T1, owned={T1: {0, 2}, T2: {1, 3}}),
        "B": subscribed(T1, T2, owned={T1: {1}, T2: {0, 2, 4}}),
    }
    expected = {"A": partitions({T1: {0, 1, 2}}), "B": partitions({T2: set(range(5))})}
    assert assign(members, {T1: 3, T2: 5}) == expected


def test_a_long_chain_is_levelled_to_its_end() -> None:
    """Each member shares a topic with the next and the first owns the most: partitions go from hand to hand."""
    length = 60
    topic_ids = [uuid.UUID(int=number) for number in range(length)]
    counts = {topic_id: 2 * (length - number) for number, topic_id in enumerate(topic_ids)}
    members = {
        f"{number:02}": subscribed(
            *topic_ids[max(number - 1, 0) : number + 1],
            owned={topic_ids[number]: set(range(counts[topic_ids[number]]))},
        )
        for number in range(length)
    }
    check_level(members, assign(members, counts))
    check_idempotent(assign, members, counts)


def check_level(members: Members, assigned: Mapping[str, Assignment]) -> None:
    """Kafka's measure: no single partition could move to a subscriber that has two fewer."""
    sizes = {name: count(assignment) for name, assignment in assigned.items()}
    for name, assignment in assigned.items():
        for topic_id in assignment:
            fewest = min(sizes[other] for other, one in members.items() if topic_id in one.topic_ids)
            assert sizes[name] - fewest <= 1


@given(groups(same_topics=False), counts_of_topics)
def test_every_topic_is_level(members: Members, counts: Counts) -> None:
    check_level(members, assign(members, counts))


@given(groups(same_topics=False), counts_of_topics, st.randoms(use_true_random=False))
def test_partitions_move_only_for_balance(members: Members, counts: Counts, random: Random) -> None:
    """Each move is to a member that has two fewer at least: it lowers the sum of squares by two or more."""
    owned: dict[str, dict[uuid.UUID, set[int]]] = {name: {} for name in members}
    for topic_id, partition_count in counts.items():
        subscribers = [name for name, member in members.items() if topic_id in member.topic_ids]
        for partition in range(partition_count if subscribers else 0):
            owned[random.choice(subscribers)].setdefault(topic_id, set()).add(partition)
    owners = owning(members, {name: partitions(own) for name, own in owned.items()})
    assigned = assign(owners, counts)
    gain = _squares(one.owned for one in owners.values()) - _squares(assigned.values())
    assert gain >= 2 * moved_partitions(owners, assigned)


def _squares(assignments: Iterable[Assignment]) -> int:
    return sum(count(assignment) ** 2 for assignment in assignments)
