"""The declaration of one metric: a row of the tables of metrics."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kafscale.ops.histogram import DURATION_BOUNDS_SEC


class MetricType(StrEnum):
    """Prometheus' own kinds."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row of the table. `name`: as Prometheus stores it; a histogram adds `_bucket`, `_sum`, `_count`.

    `bounds`: a histogram's upper bounds, where it is counted by `metrics`.
    """

    name: str
    type: MetricType
    labels: tuple[str, ...] = ()
    documentation: str
    bounds: tuple[float, ...] = ()


class FamilyTable:
    """A table in the making: rows in the order of their declaration."""

    def __init__(self) -> None:
        self._rows: list[Family] = []

    def __iter__(self) -> Iterator[Family]:
        return iter(self._rows)

    def counter(self, name: str, documentation: str, *labels: str) -> Family:
        """A row that only grows."""
        return self._row(MetricType.COUNTER, name, documentation, labels)

    def gauge(self, name: str, documentation: str, *labels: str) -> Family:
        """A row that is read at each scrape."""
        return self._row(MetricType.GAUGE, name, documentation, labels)

    def histogram(
        self, name: str, documentation: str, *labels: str, bounds: tuple[float, ...] = DURATION_BOUNDS_SEC
    ) -> Family:
        """A row of observations, of durations in seconds unless `bounds` are given."""
        return self._row(MetricType.HISTOGRAM, name, documentation, labels, bounds)

    def _row(
        self,
        metric_type: MetricType,
        name: str,
        documentation: str,
        labels: tuple[str, ...],
        bounds: tuple[float, ...] = (),
    ) -> Family:
        family = Family(
            name=name, type=metric_type, labels=labels, documentation=documentation, bounds=bounds
        )
        self._rows.append(family)
        return family
