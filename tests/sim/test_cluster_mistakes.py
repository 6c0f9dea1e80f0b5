"""The simulation finds every planted mistake: with its known seed, in `make nightly` within fresh ones."""

import pytest

from tests.sim.cluster_mistakes import SEARCH, Plant
from tests.sim.compaction_mistakes import COMPACTION_MISTAKES
from tests.sim.journal_path_mistakes import JOURNAL_PATH_MISTAKES
from tests.sim.merge_mistakes import MERGE_MISTAKES
from tests.sim.producer_mistakes import PRODUCER_MISTAKES
from tests.sim.seed_search import SeedSearch, known_seeds
from tests.sim.sharing_mistakes import SHARING_MISTAKES
from tests.sim.simulation import simulate
from tests.sim.transaction_mistakes import TRANSACTION_MISTAKES

EVERY = {
    **SEARCH,
    **MERGE_MISTAKES,
    **JOURNAL_PATH_MISTAKES,
    **SHARING_MISTAKES,
    **PRODUCER_MISTAKES,
    **COMPACTION_MISTAKES,
    **TRANSACTION_MISTAKES,
}
# Most are found in one to fifty of a hundred runs, two in one of a thousand.
SEEDS = 4000


@pytest.mark.parametrize("plant", EVERY, ids=lambda plant: plant.__name__)
def test_it_finds(plant: Plant, monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch) -> None:
    plant(monkeypatch)
    seed_search.find(plant.__name__, lambda seed: simulate(seed, **EVERY[plant]).mistake, SEEDS)


def test_every_planted_mistake_has_a_known_seed() -> None:
    assert {plant.__name__ for plant in EVERY} <= set(known_seeds())
