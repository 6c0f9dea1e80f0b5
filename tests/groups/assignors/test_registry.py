"""Rules that every assignor keeps."""

from collections.abc import Iterable
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.groups.assignors.registry import ASSIGNORS, DEFAULT_ASSIGNOR
from kafscale.groups.assignors.subscription import Subscription
from tests.groups.assignors.members import (
    T1,
    T2,
    Counts,
    Members,
    check_each_partition_once,
    check_idempotent,
    counts_of_topics,
    groups,
    subscribed,
)

Value = TypeVar("Value")

every_assignor = pytest.mark.parametrize("name", ASSIGNORS)


def test_assignors_have_the_names_that_kafka_gives_them() -> None:
    assert list(ASSIGNORS) == ["uniform", "range"]
    assert DEFAULT_ASSIGNOR == "uniform"


@every_assignor
@given(members=groups(), counts=counts_of_topics)
def test_each_partition_has_one_owner_that_subscribes(name: str, members: Members, counts: Counts) -> None:
    check_each_partition_once(members, counts, ASSIGNORS[name](members, counts))


@every_assignor
@given(members=groups(), counts=counts_of_topics)
def test_assigned_again_nothing_moves(name: str, members: Members, counts: Counts) -> None:
    check_idempotent(ASSIGNORS[name], members, counts)


@every_assignor
@given(members=groups(), counts=counts_of_topics, random=st.randoms(use_true_random=False))
def test_the_order_of_sets_and_mappings_decides_nothing(
    name: str, members: Members, counts: Counts, random: Random
) -> None:
    def shuffled(values: Iterable[Value]) -> list[Value]:
        return random.sample(in_some_order := list(values), len(in_some_order))

    otherwise = {
        member: Subscription(
            frozenset(shuffled(one.topic_ids)),
            one.instance_id,
            {topic_id: frozenset(shuffled(claimed)) for topic_id, claimed in shuffled(one.owned.items())},
        )
        for member, one in shuffled(members.items())
    }
    assign = ASSIGNORS[name]
    assert assign(otherwise, dict(shuffled(counts.items()))) == assign(members, counts)


@every_assignor
def test_a_group_without_members_has_no_assignments(name: str) -> None:
    assert ASSIGNORS[name]({}, {T1: 3}) == {}


@every_assignor
def test_members_without_topics_get_nothing(name: str) -> None:
    assert ASSIGNORS[name]({"a": subscribed(), "b": subscribed()}, {T1: 3}) == {"a": {}, "b": {}}


@every_assignor
def test_a_member_without_topics_takes_nothing_from_others(name: str) -> None:
    members = {"a": subscribed(), "b": subscribed(T1, T2)}
    everything = {T1: frozenset({0, 1}), T2: frozenset({0})}
    assert ASSIGNORS[name](members, {T1: 2, T2: 1}) == {"a": {}, "b": everything}


@every_assignor
def test_a_subscribed_topic_of_unknown_size_is_an_error(name: str) -> None:
    with pytest.raises(KeyError):
        ASSIGNORS[name]({"a": subscribed(T1)}, {T2: 1})


@every_assignor
@given(members=groups(), counts=counts_of_topics)
def test_what_is_given_is_left_as_it_is(name: str, members: Members, counts: Counts) -> None:
    before = {
        member: Subscription(one.topic_ids, one.instance_id, dict(one.owned))
        for member, one in members.items()
    }
    assigned = ASSIGNORS[name](members, counts)
    assert members == before
    assert all(assigned[member] is not one.owned for member, one in members.items())
