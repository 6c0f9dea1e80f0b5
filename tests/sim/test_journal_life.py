"""A journal's writer, progress, collection and end on a bad network: 20 fresh seeds, 3,000 in `make nightly`."""

import os
import random

import pytest

from kafscale.errors import KafscaleError
from tests.sim.journal_life import JournalLife, Outcome
from tests.sim.journal_mistakes import MISTAKES, Plant
from tests.sim.seed_search import SeedSearch, known_seeds
from tests.support.nightly import by_day
from tests.support.virtual_time import run_virtually
from tests.support.watched_loop import watched

FIRST = int(os.environ.get("KAFSCALE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
SEEDS = by_day(20, by_night=3_000)


def live(seed: int) -> Outcome:
    """The checked outcome of a seed."""
    found: list[Outcome] = []

    async def work() -> None:
        life = JournalLife(seed)
        found.append(await life.run())
        await life.check()

    run_virtually(watched(work()))
    return found[0]


def test_acknowledged_entries_count_and_refused_ones_do_not() -> None:
    print(f"KAFSCALE_TEST_SEED={FIRST}")
    outcomes = []
    for seed in range(FIRST, FIRST + SEEDS):
        try:
            outcomes.append(live(seed))
        except BaseException:
            print(f"broken with KAFSCALE_TEST_SEED={seed}")
            raise
    assert any(one.acknowledged for one in outcomes)
    assert any(one.collected for one in outcomes)
    assert all(one.refused for one in outcomes)
    acknowledged = sum(len(one.acknowledged) for one in outcomes)
    print(f"{acknowledged} acknowledged, {sum(len(one.collected) for one in outcomes)} collected")


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_lives_the_same_life_again(seed: int) -> None:
    assert live(seed) == live(seed)


@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_it_finds(plant: Plant, monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch) -> None:
    plant(monkeypatch)

    def attempt(seed: int) -> str | None:
        try:
            live(seed)
        except (AssertionError, KafscaleError, TimeoutError, ValueError, ExceptionGroup) as problem:
            return repr(problem)
        return None

    seed_search.find(plant.__name__, attempt, 300)


def test_every_planted_mistake_has_a_known_seed() -> None:
    assert {plant.__name__ for plant in MISTAKES} <= set(known_seeds())
