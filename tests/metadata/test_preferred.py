"""Preferred brokers: even for every count, the same for everybody, and little moves when a broker comes or goes."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.metadata.preferred import preferred_brokers

names = st.text(alphabet="abc-.123", min_size=1, max_size=20)
broker_ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8, unique=True)


@given(name=names, count=st.integers(0, 60), brokers=broker_ids)
def test_shares_are_at_most_one_apart(name: str, count: int, brokers: list[int]) -> None:
    shares = Counter(preferred_brokers(name, count, brokers))
    counts = [shares[broker_id] for broker_id in brokers]
    assert sum(counts) == count == shares.total()
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("count", "shares"), [(4, [1, 1, 2]), (6, [2, 2, 2]), (7, [2, 2, 3]), (1000, [333, 333, 334])]
)
def test_what_is_left_over_goes_to_different_brokers(count: int, shares: list[int]) -> None:
    for number in range(20):
        preferred = preferred_brokers(f"topic-{number}", count, (1, 2, 3))
        assert sorted(Counter(preferred).values()) == shares


@given(name=names, count=st.integers(0, 60), brokers=broker_ids, generator=st.randoms(use_true_random=False))
def test_the_order_in_which_brokers_are_known_does_not_matter(
    name: str, count: int, brokers: list[int], generator: random.Random
) -> None:
    shuffled = generator.sample(brokers, len(brokers))
    assert preferred_brokers(name, count, shuffled) == preferred_brokers(name, count, brokers)


def test_without_a_broker_there_is_none_to_prefer() -> None:
    assert preferred_brokers("topic", 3, ()) == ()


@pytest.mark.parametrize(("more", "fewer"), [((1, 2, 3), (1, 2)), ((1, 2, 3, 4, 5), (1, 2, 4, 5))])
def test_a_broker_that_comes_or_goes_moves_little_more_than_its_share(
    more: Sequence[int], fewer: Sequence[int]
) -> None:
    count = 1000
    for number in range(10):
        before = preferred_brokers(f"topic-{number}", count, more)
        after = preferred_brokers(f"topic-{number}", count, fewer)
        moved = sum(one != other for one, other in zip(before, after, strict=True))
        assert moved <= count / len(more) * 1.15


def test_topics_do_not_all_prefer_the_same_broker_first() -> None:
    firsts = {preferred_brokers(f"topic-{number}", 1, (1, 2, 3)) for number in range(50)}
    assert firsts == {(1,), (2,), (3,)}
