"""A rebuild from the bucket gives back exactly what was committed, whatever happened to the cluster before."""

import os
import random
from typing import Any

import pytest

from tests.sim.compaction_mistakes import COMPACTING
from tests.sim.rebuilt_clusters import mistakes_of_a_rebuild
from tests.sim.simulation import simulate
from tests.support.nightly import by_day

SEEDS = by_day(10, by_night=2_000)
FIRST_SEED = int(os.environ.get("KAFSCALE_TEST_SEED", random.SystemRandom().randrange(2**32)))


@pytest.mark.parametrize("special", [{}, COMPACTING], ids=["any", "compacting"])
def test_a_rebuild_gives_back_what_was_committed(special: dict[str, Any]) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (SEEDS // 6 if special else SEEDS)):
        verdict = simulate(seed, **special)
        assert verdict.mistake is None, verdict.report()
        assert verdict.cluster is not None
        assert mistakes_of_a_rebuild(verdict.cluster) == [], f"seed {seed}"
