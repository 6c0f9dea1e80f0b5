"""The search for planted mistakes: the known seed first, others only when it fails."""

import pytest

from tests.sim.seed_search import SeedSearch


class Attempts:
    """Finds the mistake with some seeds, and keeps those that were tried."""

    def __init__(self, *finding: int) -> None:
        self._finding = finding
        self.tried: list[int] = []

    def __call__(self, seed: int) -> str | None:
        self.tried.append(seed)
        return "lost" if seed in self._finding else None


def test_the_known_seed_is_tried_first() -> None:
    attempts, remarks = Attempts(3, 7), list[str]()
    assert SeedSearch({"m": 7}, remarks.append, fresh=False).find("m", attempts, 10) == 7
    assert attempts.tried == [7]
    assert remarks == []


def test_a_known_seed_that_fails_is_replaced_by_search() -> None:
    attempts, remarks = Attempts(3), list[str]()
    assert SeedSearch({"m": 2}, remarks.append, fresh=False).find("m", attempts, 10) == 3
    assert attempts.tried == [2, 0, 1, 3]
    assert remarks == ['m is no longer found with seed 2; 3 finds it: write "m": 3 in known_seeds.json']


def test_a_mistake_without_a_seed_gets_a_remark() -> None:
    remarks = list[str]()
    assert SeedSearch({}, remarks.append, fresh=False).find("m", Attempts(1), 10) == 1
    assert remarks == ['m has no known seed; 1 finds it: write "m": 1 in known_seeds.json']


def test_a_mistake_that_no_seed_finds_fails() -> None:
    attempts = Attempts()
    with pytest.raises(AssertionError, match="m: not found in 5 seeds"):
        SeedSearch({"m": 9}, pytest.fail, fresh=False).find("m", attempts, 5)
    assert attempts.tried == [9, 0, 1, 2, 3, 4]


def test_a_nightly_search_ignores_the_known_seed() -> None:
    tried: list[int] = []

    def attempt(seed: int) -> str | None:
        tried.append(seed)
        return "lost" if len(tried) == 5 else None

    SeedSearch({"m": 0}, pytest.fail, fresh=True).find("m", attempt, 5)
    assert tried == list(range(tried[0], tried[0] + 5))
