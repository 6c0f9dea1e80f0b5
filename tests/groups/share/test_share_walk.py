"""Whatever clients, topics, stores and coordinators do to a share group, it keeps its promises and comes to rest.

The walk is in share_walk.py; that it would notice is shown by mistakes that it has to find.
"""

import random

import pytest

from tests.groups.share.machine_mistakes import MISTAKES, Plant
from tests.groups.share.share_walk import walk
from tests.support.nightly import by_day

WALKS = by_day(60, by_night=6_000)
MOST_STEPS = 300
WALKS_SEARCHED = 600
KNOWN_SEEDS = {"says_nothing_to_who_lost_an_answer": (534,), "does_not_compare_what_it_loads": (363,)}
"""Those that took hundreds of walks are tried first with what noticed them."""


def _steps(seed: int) -> int:
    return random.Random(seed).randrange(1, MOST_STEPS)


@pytest.mark.timeout(300 + WALKS)
def test_a_share_group_keeps_its_promises_and_comes_to_rest() -> None:
    first = random.randrange(2**32)
    print(f"seeds {first} to {first + WALKS - 1}")
    for seed in range(first, first + WALKS):
        try:
            walk(seed, _steps(seed))
        except AssertionError as problem:
            raise AssertionError(f"seed {seed}, {_steps(seed)} steps: {problem}") from problem


@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_the_walk_notices(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in (*KNOWN_SEEDS.get(plant.__name__, ()), *range(WALKS_SEARCHED)):
        try:
            walk(seed, _steps(seed))
        except AssertionError:
            return
    pytest.fail(f"no walk of {WALKS_SEARCHED} notices")
