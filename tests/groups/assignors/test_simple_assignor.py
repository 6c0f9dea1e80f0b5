"""The assignor `simple` of share groups: everything is covered, shares are even, and what is even stays."""

import uuid
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.groups.assignors.simple_assignor import assign
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.modern.assignment import Assignment, TopicIdPartition, count, partitions_of

TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]

COUNTS = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in TOPICS})
OWNED = st.dictionaries(
    st.sampled_from([*TOPICS, uuid.UUID(int=99)]),
    st.frozensets(st.integers(0, 7), min_size=1, max_size=5),
    max_size=3,
)
NAMES = st.integers(0, 40).map("m{:02}".format)


def _members(topics: st.SearchStrategy[frozenset[uuid.UUID]]) -> st.SearchStrategy[dict[str, Subscription]]:
    one = st.builds(Subscription, topic_ids=topics, instance_id=st.none(), owned=OWNED)
    return st.dictionaries(NAMES, one, max_size=12)


MIXED = _members(st.frozensets(st.sampled_from(TOPICS), max_size=4))
ALIKE = _members(st.just(frozenset(TOPICS)))


def _again(members: dict[str, Subscription], target: dict[str, Assignment]) -> dict[str, Subscription]:
    return {name: Subscription(one.topic_ids, None, target[name]) for name, one in members.items()}


def _sizes(target: dict[str, Assignment]) -> Counter[TopicIdPartition]:
    return Counter(partition for one in target.values() for partition in partitions_of(one))


@given(MIXED, COUNTS)
def test_all_partitions_and_all_members_are_served(
    members: dict[str, Subscription], counts: dict[uuid.UUID, int]
) -> None:
    target = assign(members, counts)
    assert target.keys() == members.keys()
    for name, one in members.items():
        assert all(target[name].values()), "a topic without partitions"
        assert target[name].keys() <= one.topic_ids
        assert bool(target[name]) == any(counts[topic] for topic in one.topic_ids)
    wanted = {
        (topic, index)
        for one in members.values()
        for topic in one.topic_ids
        for index in range(counts[topic])
    }
    assert set(_sizes(target)) == wanted


@given(ALIKE, COUNTS)
def test_members_that_subscribe_alike_have_even_shares(
    members: dict[str, Subscription], counts: dict[uuid.UUID, int]
) -> None:
    target = assign(members, counts)
    partitions = sum(counts.values())
    if not members or not partitions:
        return
    shares = [count(one) for one in target.values()]
    sizes = _sizes(target).values()
    if len(members) <= partitions:
        assert max(shares) - min(shares) <= 1
        assert set(sizes) == {1}
    else:
        assert set(shares) == {1}
        assert max(sizes) - min(sizes) <= 1


@given(MIXED, COUNTS)
def test_what_was_assigned_stays(members: dict[str, Subscription], counts: dict[uuid.UUID, int]) -> None:
    target = assign(members, counts)
    assert assign(_again(members, target), counts) == target


@given(ALIKE, COUNTS)
@settings(max_examples=50)
def test_who_stays_beside_one_that_joins_moves_little(
    members: dict[str, Subscription], counts: dict[uuid.UUID, int]
) -> None:
    members.pop("new", None)
    before = assign(members, counts)
    joined = _again(members, before) | {"new": Subscription(frozenset(TOPICS), None, {})}
    after = assign(joined, counts)
    partitions = sum(counts.values())
    # No more than the newcomer's share is taken from others, and nobody is given what another has lost.
    lost = sum(len(set(partitions_of(before[one])) - set(partitions_of(after[one]))) for one in before)
    assert lost <= -(-partitions // (len(before) + 1))


def test_two_hundred_members_share_three_partitions() -> None:
    members = {f"m{number:03}": Subscription(frozenset(TOPICS[:1]), None, {}) for number in range(200)}
    target = assign(members, {TOPICS[0]: 3})
    assert sorted(_sizes(target).values()) == [66, 67, 67]
    left = {name: one for name, one in _again(members, target).items() if name > "m049"}
    again = assign(left, {TOPICS[0]: 3})
    assert sorted(_sizes(again).values()) == [50, 50, 50]
    moved = sum(again[name] != target[name] for name in left)
    assert moved <= 50


def test_members_share_none_while_there_are_enough() -> None:
    one = Subscription(frozenset(TOPICS[:1]), None, {TOPICS[0]: frozenset(range(4))})
    target = assign({"a": one, "b": Subscription(one.topic_ids, None, {})}, {TOPICS[0]: 4})
    assert count(target["a"]) == count(target["b"]) == 2
