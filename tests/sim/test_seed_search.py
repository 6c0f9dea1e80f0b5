"""The search for planted mistakes: the known seed first, others only when it fails."""

import json
from pathlib import Path

import pytest

from tests.sim.seed_search import SeedSearch, keep_seeds


class Attempts:
    """Finds the mistake with some seeds, and keeps those that were tried."""

    def __init__(self, *finding: int) -> None:
        self._finding = finding
        self.tried: list[int] = []

    def __call__(self, seed: int) -> str | None:
        self.tried.append(seed)
        return "lost" if seed in self._finding else None


class Remarks:
    """Keeps what the search says."""

    def __init__(self) -> None:
        self.all: list[tuple[str, int, str]] = []

    def __call__(self, name: str, seed: int, line: str) -> None:
        self.all.append((name, seed, line))


def no_remark(name: str, seed: int, line: str) -> None:
    pytest.fail(f"{name}, {seed}: {line}")


def test_the_known_seed_is_tried_first() -> None:
    attempts, remarks = Attempts(3, 7), Remarks()
    assert SeedSearch({"m": 7}, remarks, fresh=False).find("m", attempts, 10) == 7
    assert attempts.tried == [7]
    assert remarks.all == []


def test_a_known_seed_that_fails_is_replaced_by_search() -> None:
    attempts, remarks = Attempts(3), Remarks()
    assert SeedSearch({"m": 2}, remarks, fresh=False).find("m", attempts, 10) == 3
    assert attempts.tried == [2, 0, 1, 3]
    assert remarks.all == [
        ("m", 3, 'm is no longer found with seed 2; 3 finds it: write "m": 3 in known_seeds.json')
    ]


def test_a_mistake_without_a_seed_gets_a_remark() -> None:
    remarks = Remarks()
    assert SeedSearch({}, remarks, fresh=False).find("m", Attempts(1), 10) == 1
    assert remarks.all == [("m", 1, 'm has no known seed; 1 finds it: write "m": 1 in known_seeds.json')]


def test_a_mistake_that_no_seed_finds_fails() -> None:
    attempts = Attempts()
    with pytest.raises(AssertionError, match="m: not found in 5 seeds"):
        SeedSearch({"m": 9}, no_remark, fresh=False).find("m", attempts, 5)
    assert attempts.tried == [9, 0, 1, 2, 3, 4]


def test_a_nightly_search_ignores_the_known_seed() -> None:
    tried: list[int] = []

    def attempt(seed: int) -> str | None:
        tried.append(seed)
        return "lost" if len(tried) == 5 else None

    SeedSearch({"m": 0}, no_remark, fresh=True).find("m", attempt, 5)
    assert tried == list(range(tried[0], tried[0] + 5))


def test_seeds_are_kept_where_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "seeds.json"
    file.write_text('{\n  "b": 1,\n  "a": 2\n}\n')
    keep_seeds({"b": 7, "c": 3}, file)
    assert list(json.loads(file.read_text()).items()) == [("b", 7), ("a", 2), ("c", 3)]
