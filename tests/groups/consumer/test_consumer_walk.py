"""Whatever clients, topics, stores and coordinators do to a consumer group, it keeps its promises and comes to rest.

The walk is in consumer_walk.py; that it would notice is shown by mistakes that it has to find.
"""

import random

import pytest

from tests.groups.consumer.consumer_walk import walk
from tests.groups.consumer.machine_mistakes import MISTAKES, Plant
from tests.support.nightly import by_day

WALKS = by_day(60, by_night=6_000)
MOST_STEPS = 300
WALKS_SEARCHED = 600


def _steps(seed: int) -> int:
    return random.Random(seed).randrange(1, MOST_STEPS)


@pytest.mark.timeout(300 + WALKS)
def test_a_consumer_group_keeps_its_promises_and_comes_to_rest() -> None:
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
    for seed in range(WALKS_SEARCHED):
        try:
            walk(seed, _steps(seed))
        except AssertionError:
            return
    pytest.fail(f"no walk of {WALKS_SEARCHED} notices")
