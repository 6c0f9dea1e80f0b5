"""A broker's `/metrics`, read as Prometheus reads it."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


class MetricsPage:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def value(self, name: str, **labels: str) -> float:
        """The one sample with that name and exactly these labels."""
        found = [value for other, value in self._named(name) if other == labels]
        assert len(found) == 1, f"{len(found)} samples of {name} {labels}"
        return found[0]

    def by_label(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Every sample with that name, by the values of these labels; empty if there is none."""
        return {tuple(own[label] for label in labels): value for own, value in self._named(name)}

    def _named(self, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
        return ((sample.labels, sample.value) for sample in self._samples if sample.name == name)


def scrape(broker: Any) -> MetricsPage:
    """A scrape of the broker (anything with `http_get`)."""
    status, text = broker.http_get("/metrics")
    assert status == 200, f"status {status}: {text[:200]}"
    return MetricsPage(text)
