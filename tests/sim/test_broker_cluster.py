"""A cluster of real brokers loses nothing, whatever its stores, networks, clocks and processes do.

60 fresh seeds in `make test`, 20,000 in `make nightly`. KAFSCALE_TEST_SIMULATIONS sets another number,
KAFSCALE_TEST_SEED the first seed.
"""

import gc
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from tests.sim.compaction_mistakes import COMPACTING
from tests.sim.sharing_mistakes import SHARING
from tests.sim.simulation import simulate
from tests.sim.transaction_plans import TRANSACTIONS
from tests.support.nightly import by_day

SEEDS = int(os.environ.get("KAFSCALE_TEST_SIMULATIONS", by_day(25, by_night=20_000)))
FIRST_SEED = int(os.environ.get("KAFSCALE_TEST_SEED", random.SystemRandom().randrange(2**32)))
# Each part is a test of its own: one that hangs ends by its timeout, and the others tell all the same.
PARTS = 5
MORE = 50  # at most so many runs further, until the average is what it is of many
_COLLECT_EVERY = 20
SPECIAL_SEEDS = max(4, SEEDS // 20)  # of each special plan


@pytest.fixture(autouse=True)
def collected_now_and_then() -> Iterator[None]:
    """A run leaves cycles behind; looking for them in the middle of runs takes a fifth of the time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def run(seeds: range, **special: object) -> Counter[str]:
    """Run them all; the first mistake is told with what led there."""
    counts: Counter[str] = Counter()
    for number, seed in enumerate(seeds):
        verdict = simulate(seed, **special)
        assert verdict.mistake is None, verdict.report()
        counts.update(verdict.counts)
        if number % _COLLECT_EVERY == 0:
            gc.collect()
    return counts


def run_enough(seeds: range, often: Mapping[str, float], **special: object) -> Counter[str]:
    """Run the seeds, and go on after them until what is in `often` has happened more than so often a run.

    If nothing happens, nothing goes wrong; but of a few runs chance decides how much does.
    """
    counts, stop = run(seeds, **special), seeds.stop
    while lacking := {
        what: counts[what] for what in often if counts[what] <= often[what] * (stop - seeds.start)
    }:
        assert stop < seeds.stop + MORE, f"too seldom in {stop - seeds.start} runs: {lacking}"
        counts.update(run(range(stop, stop + 1), **special))
        stop += 1
    return counts


@pytest.mark.timeout(900 + SEEDS)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_that_was_promised_is_broken(part: int) -> None:
    size = -(-SEEDS // PARTS)
    first = FIRST_SEED + part * size
    seeds = range(first, min(first + size, FIRST_SEED + SEEDS))
    counts = run_enough(seeds, {"acknowledged": 10, "claims": 1})
    print(f"seeds from {seeds.start}: {dict(counts)}")


@pytest.mark.timeout(900 + SEEDS)
def test_cluster_stays_correct_with_recreated_topics() -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + SPECIAL_SEEDS)
    run(seeds, kinds=("delete topic", "delete topic", "kill", "pause", "end lease", "delay"))


@pytest.mark.timeout(900 + SEEDS)
def test_compaction_takes_only_what_newer_records_replace() -> None:
    # Its runs are long: fewer by day.
    seeds = range(FIRST_SEED, FIRST_SEED + max(3, SEEDS // 20))
    run_enough(seeds, {"compactions": 1}, **COMPACTING)


@pytest.mark.timeout(900 + SEEDS)
def test_nothing_is_broken_where_publications_share_transactions() -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + SPECIAL_SEEDS)
    counts = run_enough(seeds, {"shared records": 5}, **SHARING)
    # Of one in five runs: where there are few it may not happen.
    assert counts["partly failed"] > 0 or len(seeds) < 50


@pytest.mark.timeout(900 + SEEDS)
def test_transactions_are_all_or_nothing() -> None:
    # Its runs are long: fewer by day.
    seeds = range(FIRST_SEED, FIRST_SEED + max(3, SEEDS // 20))
    # New instances take over from those that vanish, and from those that are taken for dead.
    run_enough(seeds, {"committed": 5, "aborted": 1, "instances": 2}, **TRANSACTIONS)


def test_a_seed_repeats_its_run_exactly() -> None:
    seeds = range(FIRST_SEED, FIRST_SEED + by_day(2, by_night=50))
    for seed in seeds:
        once, again = simulate(seed), simulate(seed)
        assert once.trace.events == again.trace.events, f"seed {seed}"
        assert once.counts == again.counts


@pytest.mark.nightly
def test_a_seed_repeats_its_run_in_another_process() -> None:
    """Where the hashes of texts, and with them the order of sets, are others."""
    seed = str(FIRST_SEED)
    command = [sys.executable, "-m", "tests.sim.simulation", seed]
    shown = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(shown) == 1, f"seed {seed}"
    assert f"seed {seed}: all is as promised".encode() in shown.pop()


def test_one_seed() -> None:
    """For the seed of a run that failed (KAFSCALE_TEST_SEED)."""
    verdict = simulate(FIRST_SEED)
    assert verdict.mistake is None, verdict.report()


def test_a_mistake_is_reported_with_its_seed_and_events() -> None:
    verdict = simulate(1)
    verdict.mistake = "something is lost"
    report = verdict.report()
    assert report.startswith("seed 1: something is lost\n")
    assert verdict.trace.text(last=50).split("\n", 1)[1] in report
    assert "KAFSCALE_TEST_SEED=1 " in report
