"""Broker CPU as a ratio to the no-op ceiling's, compared with the recorded ratios. Pure.

A ratio is that of the two best samples: whatever else runs on the machine only adds to a process' CPU time, by
caches and memory that it takes away, so the least disturbed sample says most. Machines differ less in it than in
either figure.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

FEWEST_ROUNDS: Final = 3
"""For a figure that is as recorded."""

ENOUGH_ROUNDS: Final = 6
"""Before a figure counts as worse whose best samples agree."""

MOST_ROUNDS: Final = 12
"""Before a figure counts as worse whose best samples still differ: a machine with other load."""

AGREE: Final = 1.1
"""The best two samples agree if the second is at most so many times the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A compared figure. `margin`: how many times the recorded ratio is not clearly worse yet."""

    name: str
    unit: str
    margin: float


TINY: Final = Figure(name="tiny produce requests", unit="request", margin=1.6)
FRAMES: Final = Figure(name="produce in 1 MiB frames", unit="GB", margin=1.6)
FETCH: Final = Figure(name="fetch in 1 MiB frames", unit="GB", margin=1.5)
FIGURES: Final = (TINY, FRAMES, FETCH)


@dataclass(slots=True)
class Costs:
    """CPU seconds (user and system) for each unit of one figure, a sample for each round."""

    ours: list[float] = field(default_factory=list)
    ceiling: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The ratio of our best sample to the ceiling's best."""
        return min(self.ours) / min(self.ceiling)

    @property
    def agree(self) -> bool:
        """True if the best two samples of both agree."""
        return all(_best_two_agree(samples) for samples in (self.ours, self.ceiling))


def _best_two_agree(samples: Sequence[float]) -> bool:
    best, second = sorted(samples)[:2]
    return second <= best * AGREE


Measured = Mapping[Figure, Costs]
Recorded = Mapping[str, float]
"""The ratio of each figure by its name."""


class Verdict(Enum):
    """The verdict of the rounds so far."""

    AS_RECORDED = "as recorded"
    NOT_CLEAR = "not clear yet"
    WORSE = "clearly worse"


def is_over(figure: Figure, costs: Costs, recorded: Recorded) -> bool:
    """True if the figure is past its margin."""
    return costs.ratio > recorded[figure.name] * figure.margin


def verdict(measured: Measured, recorded: Recorded) -> Verdict:
    """The figures that are worse: past their margin after so many rounds that chance is ruled out."""
    rounds = min(len(costs.ours) for costs in measured.values())
    if rounds < FEWEST_ROUNDS:
        return Verdict.NOT_CLEAR
    over = [costs for figure, costs in measured.items() if is_over(figure, costs, recorded)]
    if not over:
        return Verdict.AS_RECORDED
    if rounds >= MOST_ROUNDS or (rounds >= ENOUGH_ROUNDS and any(costs.agree for costs in over)):
        return Verdict.WORSE
    return Verdict.NOT_CLEAR


def report(measured: Measured, recorded: Recorded) -> str:
    """A line for each figure: its ratio, the recorded one, the limit, and the samples of both."""
    return "\n".join(_line(figure, costs, recorded) for figure, costs in measured.items())


def _line(figure: Figure, costs: Costs, recorded: Recorded) -> str:
    held = recorded.get(figure.name)
    limit = "none recorded" if held is None else f"recorded {held:.2f}, too much {held * figure.margin:.2f}"
    return (
        f"{figure.name}: {costs.ratio:.2f} times the ceiling ({limit}); CPU us/{figure.unit} "
        f"{_samples(costs.ours)} / {_samples(costs.ceiling)}"
    )


def _samples(seconds: Sequence[float]) -> str:
    return " ".join(f"{one * 1e6:,.3g}" if one < 1e-3 else f"{one * 1e6:,.0f}" for one in seconds)


def encode_recorded(measured: Measured) -> str:
    """The text of the file of recorded ratios."""
    return (
        json.dumps({figure.name: round(costs.ratio, 2) for figure, costs in measured.items()}, indent=2)
        + "\n"
    )


def decode_recorded(text: str) -> Recorded:
    """The ratios from `encode_recorded`. Raises ValueError unless there is a positive ratio for each figure."""
    found = json.loads(text)
    names = {figure.name for figure in FIGURES}
    if not isinstance(found, dict) or set(found) != names:
        raise ValueError(f"recorded ratios are of {sorted(found)}; legal: of {sorted(names)}")
    for name, value in found.items():
        if not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"recorded ratio of {name!r} is {value!r}; legal: a number above 0")
    return {name: float(value) for name, value in found.items()}
