"""The simulation finds mistakes that are put in on purpose, each within so many seeds."""

import pytest

from tests.sim.cluster_mistakes import SEARCH, Plant
from tests.sim.merge_mistakes import MERGE_MISTAKES
from tests.sim.pipelining_mistakes import PIPELINING_MISTAKES
from tests.sim.sharing_mistakes import SHARING_MISTAKES
from tests.sim.simulation import simulate

EVERY = {**SEARCH, **MERGE_MISTAKES, **PIPELINING_MISTAKES, **SHARING_MISTAKES}
# Each is found in one to fifty of a hundred runs.
SEEDS = 600


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", EVERY, ids=lambda plant: plant.__name__)
def test_it_finds(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(SEEDS):
        verdict = simulate(seed, **EVERY[plant])
        if verdict.mistake is not None:
            print(f"found with seed {seed}: {verdict.mistake}")
            return
    pytest.fail(f"not found in {SEEDS} seeds")
