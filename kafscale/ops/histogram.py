"""Observations counted by upper bound, as Prometheus wants them."""

from bisect import bisect_left

DURATION_BOUNDS_SEC = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class Histogram:
    """Observations counted by upper bound. The last of `counts` is for what exceeds every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation; a value equal to a bound belongs to it, as Prometheus' `le` says."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, count: int) -> None:
        """Count so many observations of the same value."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count
