"""Finds planted mistakes: first with the seed that is known to find each, and only then by search.

`known_seeds.json` keeps a seed for each mistake. A change to the code or to the simulation changes what a seed
does: then the search goes on from 0, and the run says at its end which seed to keep. `make nightly` ignores the
file and searches from seeds that were never tried.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.support.nightly import IS_NIGHTLY

FILE = Path(__file__).with_name("known_seeds.json")
Attempt = Callable[[int], str | None]
"""Runs a seed; returns what it found, or None."""


Remark = Callable[[str, int, str], None]
"""Receives a mistake, the seed to keep for it, and a line that says so."""


def known_seeds() -> dict[str, int]:
    """The seed that finds each mistake, by the mistake's name."""
    seeds: dict[str, int] = json.loads(FILE.read_text())
    return seeds


def keep_seeds(seeds: Mapping[str, int], file: Path = FILE) -> None:
    """Write these seeds into the file; all others stay, and the order too."""
    kept: dict[str, int] = json.loads(file.read_text()) | dict(seeds)
    file.write_text(json.dumps(kept, indent=2) + "\n")


class SeedSearch:
    """Looks for one seed that finds a mistake. `remark` receives what to change in the file."""

    def __init__(self, known: Mapping[str, int], remark: Remark, *, fresh: bool = IS_NIGHTLY) -> None:
        self._known = known
        self._remark = remark
        self._fresh = fresh

    def find(self, name: str, attempt: Attempt, within: int) -> int:
        """The seed that found the mistake. Raises `AssertionError` if none of `within` seeds does."""
        for seed in self._seeds(name, within):
            if (found := attempt(seed)) is not None:
                print(f"{name}: found with seed {seed}: {found}")
                if not self._fresh and seed != self._known.get(name):
                    self._remark(name, seed, self._seed_to_keep(name, seed))
                return seed
        raise AssertionError(f"{name}: not found in {within} seeds")

    def _seeds(self, name: str, within: int) -> Iterator[int]:
        if self._fresh:
            first = random.SystemRandom().randrange(2**32)
            print(f"{name}: seeds from {first}")
            yield from range(first, first + within)
            return
        known = self._known.get(name)
        if known is not None:
            yield known
        yield from (seed for seed in range(within) if seed != known)

    def _seed_to_keep(self, name: str, seed: int) -> str:
        known = self._known.get(name)
        before = "has no known seed" if known is None else f"is no longer found with seed {known}"
        return f'{name} {before}; {seed} finds it: write "{name}": {seed} in {FILE.name}'
