"""`python -m tests.fuzz`: mutated frames of every API and version against a broker of its own."""

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import Plan, fuzz

LEAST_LOOKED_AT = 0.5
MOST_SHOWN_BYTES = 4_000


def main() -> int:
    """Run until all frames are sent; the exit status is 1 when a defect was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000, help="how many to send (default: 100,000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="end after this time (default: never)"
    )
    parser.add_argument("--connections", type=int, default=64, help="open at a time (default: 64)")
    parser.add_argument(
        "--watcher-seconds",
        type=float,
        default=10.0,
        help="the limit of the watcher's requests (default: 10)",
    )
    given = parser.parse_args()
    plan = Plan(
        frames=given.frames,
        seed=given.seed,
        most_seconds=given.seconds,
        connections=given.connections,
        watcher_limit_sec=given.watcher_seconds,
    )
    with tempfile.TemporaryDirectory(prefix="kafscale-fuzz-") as folder:
        outcome = fuzz(plan, Path(folder))
    tally = outcome.tally
    print(*tally.table(), sep="\n")
    share = tally.looked_at / max(1, tally.frames)
    print(f"{tally.frames:,} frames in {outcome.seconds:.0f} s, {share:.0%} looked at, seed {plan.seed}")
    for payload in tally.unexplained:
        print(f"decodes, but ended its connection: {payload[:MOST_SHOWN_BYTES].hex()}")
    print(*outcome.failures, sep="\n")
    return int(bool(outcome.failures or tally.unexplained) or share < LEAST_LOOKED_AT)


if __name__ == "__main__":
    sys.exit(main())
