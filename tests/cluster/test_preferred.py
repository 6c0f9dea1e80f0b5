"""Preferred brokers: even, the same for everybody, and little moves when brokers come and go."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.preferred import preferred_brokers
from kafscale.metadata.keys import GROUP_SHARD_COUNT

names = st.text(max_size=20)
counts = st.integers(0, 200)
brokers = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=12, unique=True).map(sorted)


def test_brokers_of_all_versions_agree_on_these() -> None:
    """They run side by side while a cluster is updated: with another answer they would fight over partitions."""
    assert preferred_brokers("orders", 12, [1, 2, 3]) == (2, 3, 2, 3, 3, 3, 1, 2, 1, 1, 2, 1)
    assert preferred_brokers("orders", 7, [0, 5]) == (5, 5, 5, 5, 0, 0, 0)
    assert preferred_brokers("äöü", 6, [10, 20, 30, 40]) == (30, 20, 30, 10, 20, 40)
    assert preferred_brokers("", 3, [2**31 - 1, 0]) == (0, 0, 2**31 - 1)
    assert "".join(map(str, preferred_brokers("group-shards", GROUP_SHARD_COUNT, [1, 2, 3]))) == (
        "1113331221111221213331131333231121213311323231133312233222222222"
    )


@given(names, counts, brokers)
def test_no_broker_gets_more_than_its_share(name: str, count: int, broker_ids: list[int]) -> None:
    preferred = preferred_brokers(name, count, broker_ids)
    assert len(preferred) == count
    assert set(preferred) <= set(broker_ids)
    share = -(-count // len(broker_ids))
    assert all(preferred.count(broker_id) <= share for broker_id in broker_ids)


@given(names, counts, brokers, st.randoms(use_true_random=False))
def test_the_order_of_the_brokers_is_of_no_matter(
    name: str, count: int, broker_ids: list[int], rng: random.Random
) -> None:
    shuffled = rng.sample(broker_ids, len(broker_ids))
    assert preferred_brokers(name, count, shuffled) == preferred_brokers(name, count, broker_ids)


@given(names, st.integers(0, 1000))
def test_without_brokers_and_with_one(name: str, count: int) -> None:
    assert preferred_brokers(name, count, []) == ()
    assert preferred_brokers(name, count, [7]) == (7,) * count


@pytest.mark.parametrize("broker_count", [3, 5, 10])
def test_a_broker_that_goes_moves_little_more_than_what_it_had(broker_count: int) -> None:
    """Of 40 topics with 60 partitions each. What moves is its own share, and what others have no room for."""
    before = list(range(broker_count))
    gone, count = 1, 60
    moved = had = 0
    for number in range(40):
        name = f"topic-{number}"
        old = preferred_brokers(name, count, before)
        new = preferred_brokers(name, count, [one for one in before if one != gone])
        had += old.count(gone)
        moved += sum(one != other for one, other in zip(old, new, strict=True))
    assert had == 40 * count // broker_count
    assert had <= moved < 2 * had


@pytest.mark.parametrize("broker_count", [2, 3, 9])
def test_new_broker_takes_its_share_and_little_else_moves(broker_count: int) -> None:
    before, count = list(range(broker_count)), 60
    moved = taken = 0
    for number in range(40):
        name = f"topic-{number}"
        old = preferred_brokers(name, count, before)
        new = preferred_brokers(name, count, [*before, 100])
        taken += new.count(100)
        moved += sum(one != other for one, other in zip(old, new, strict=True))
    assert taken == 40 * count // (broker_count + 1)
    assert taken <= moved < 2 * taken


def test_added_partitions_move_few_of_the_others() -> None:
    """More room changes the answer for the last ones only, which had to take what was left."""
    moved = 0
    for number in range(40):
        old = preferred_brokers(f"topic-{number}", 60, [1, 2, 3])
        new = preferred_brokers(f"topic-{number}", 90, [1, 2, 3])
        moved += sum(one != other for one, other in zip(old, new, strict=False))
    assert moved < 40 * 60 / 10


def test_topics_of_one_partition_are_spread_too() -> None:
    preferred = [preferred_brokers(f"topic-{number}", 1, [1, 2, 3])[0] for number in range(3000)]
    assert all(900 < preferred.count(broker_id) < 1100 for broker_id in (1, 2, 3))
