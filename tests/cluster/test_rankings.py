"""Rankings give what `preferred_brokers` gives, whatever brokers come and go, and compute little for it."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.cluster import preferred, rankings
from kafscale.cluster.preferred import preferred_brokers
from kafscale.cluster.rankings import RANKED, Rankings
from kafscale.cluster.weights import COLUMN_ITEMS, Seeds, column, weight
from tests.support.nightly import by_day

NAMES = st.sampled_from(["a", "b", "group-shards"])
COUNTS = st.sampled_from([0, 1, 2, 9, 30, COLUMN_ITEMS - 1, COLUMN_ITEMS + 20])
BROKERS = st.sets(st.sampled_from([*range(40), 2**31 - 1]), max_size=40).map(sorted).map(tuple)


@given(st.integers(0, 2**64 - 1), st.integers(0, 20_000), st.integers(0, COLUMN_ITEMS))
def test_a_column_has_the_weight_of_each_item(seed: int, start: int, count: int) -> None:
    stop = start + count
    assert list(column(seed, start, stop)) == [weight(seed, index) for index in range(start, stop)]


@settings(max_examples=by_day(25, by_night=600))
@given(st.lists(st.tuples(NAMES, COUNTS, BROKERS), max_size=12))
def test_rankings_give_what_is_computed_as_a_whole(steps: list[tuple[str, int, tuple[int, ...]]]) -> None:
    ranked = Rankings()
    for name, count, brokers in steps:
        assert ranked.preferred(name, count, brokers) == preferred_brokers(name, count, brokers)


@settings(max_examples=by_day(12, by_night=300))
@given(st.data())
def test_so_they_do_when_few_come_and_go_at_a_time(data: st.DataObject) -> None:
    """As in a cluster: what was ranked is used, and added to."""
    ranked, brokers = Rankings(), set(range(100, 120))
    for _ in range(8):
        brokers ^= data.draw(st.sets(st.integers(95, 125), max_size=3))
        now = tuple(sorted(brokers))
        for name, count in (("a", 70), ("b", 7), ("c", COLUMN_ITEMS + 3)):
            assert ranked.preferred(name, count, now) == preferred_brokers(name, count, now)


def test_of_brokers_with_the_same_weights_the_first_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are 64 bits, so none of the others sees this; who computes as a whole takes the first."""

    def seed(self: Seeds, broker_id: int) -> int:
        return broker_id // 3 * 0x9E3779B97F4A7C15

    monkeypatch.setattr(Seeds, "__missing__", seed)
    ranked, brokers = Rankings(), tuple(range(50))
    for missing in ({50, 51}, {1, 3}, {0, 7, 48}, {50, 51}, {49}):
        now = tuple(sorted({*brokers, 50, 51} - missing))
        assert ranked.preferred("a", 300, now) == preferred_brokers("a", 300, now)


def test_change_of_a_broker_costs_about_its_own_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted, not timed: as a whole every item has a weight for each of the brokers."""
    computed, count, everybody = 0, 2_000, tuple(range(100))
    changes = [everybody[:-1], everybody, (*everybody, 100)]
    expected = [preferred_brokers("a", count, now) for now in changes]

    def counted(seed: int, index: int) -> int:
        nonlocal computed
        computed += 1
        return weight(seed, index)

    def counted_column(seed: int, start: int, stop: int) -> Sequence[int]:
        nonlocal computed
        computed += stop - start
        return column(seed, start, stop)

    monkeypatch.setattr(rankings, "column", counted_column)
    for module in (rankings, preferred):
        monkeypatch.setattr(module, "weight", counted)
    ranked = Rankings()
    ranked.preferred("a", count, everybody)
    assert computed >= count * len(everybody)
    costs = []
    for now, wanted in zip(changes, expected, strict=True):
        computed = 0
        assert ranked.preferred("a", count, now) == wanted
        costs.append(computed)
    gone, back, came = costs
    assert max(gone, back) <= count / 4
    assert count < came <= 2 * count


def test_a_removed_ranking_is_made_again() -> None:
    ranked, brokers = Rankings(), tuple(range(20))
    ranked.preferred("a", 100, brokers)
    assert len(ranked) == 1
    ranked.forget("a")
    ranked.forget("unknown")
    assert len(ranked) == 0
    assert ranked.preferred("a", 100, brokers) == preferred_brokers("a", 100, brokers)


def test_few_brokers_are_not_kept() -> None:
    ranked, brokers = Rankings(), tuple(range(RANKED))
    assert ranked.preferred("a", 100, brokers) == preferred_brokers("a", 100, brokers)
    assert len(ranked) == 0
