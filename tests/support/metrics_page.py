"""A broker's `/metrics`, read as Prometheus reads it."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


class MetricsPage:
    """The samples of one scrape. A name's lines are parsed when they are asked for: tests scrape while they wait."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)

    def value(self, name: str, **labels: str) -> float:
        """The one sample with that name and exactly these labels."""
        found = [value for other, value in self._named(name) if other == labels]
        assert len(found) == 1, f"{len(found)} samples of {name} {labels}"
        return found[0]

    def by_label(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Every sample with that name, by the values of these labels; empty if there is none."""
        return {tuple(own[label] for label in labels): value for own, value in self._named(name)}

    def _named(self, name: str) -> Iterator[tuple[Mapping[str, str], float]]:
        lines = "".join(line for line in self._lines if line.startswith(name))
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                if sample.name == name:
                    yield sample.labels, sample.value


def scrape(broker: Any) -> MetricsPage:
    """A scrape of the broker (anything with `http_get`)."""
    status, text = broker.http_get("/metrics")
    assert status == 200, f"status {status}: {text[:200]}"
    return MetricsPage(text)
