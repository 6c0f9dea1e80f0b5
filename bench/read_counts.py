"""A broker's counters of its reads: GETs and their duration, Fetch requests, and their CPU."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from bench.kafscale_broker import Kafscale
from kafscale.protocol.api_keys import ApiKey

# How a broker reads slices, segments and indexes. A `get` reads a small object whole: a checkpoint after a start.
_RANGE_GETS = ("get_range", "read_into", "size_bytes")
_OTHER_GETS = ("get",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A broker's counters since its start: GETs, their total duration, Fetch requests, CPU.

    `gets` are those of slices, segments and indexes, to which alone the time belongs.
    """

    gets: float
    other_gets: float
    get_sec: float
    fetches: float
    cpu_sec: float

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(
            gets=self.gets - other.gets,
            other_gets=self.other_gets - other.other_gets,
            get_sec=self.get_sec - other.get_sec,
            fetches=self.fetches - other.fetches,
            cpu_sec=self.cpu_sec - other.cpu_sec,
        )


def counts(broker: Kafscale) -> Counts:
    """The counters from `/metrics` and the operating system."""
    samples = [
        sample for family in text_string_to_metric_families(broker.metrics()) for sample in family.samples
    ]

    def total(name: str, label: str, values: tuple[str, ...]) -> float:
        return sum(one.value for one in samples if one.name == name and one.labels.get(label) in values)

    store = "kafscale_object_store_duration_seconds"
    return Counts(
        gets=total(f"{store}_count", "operation", _RANGE_GETS),
        other_gets=total(f"{store}_count", "operation", _OTHER_GETS),
        get_sec=total(f"{store}_sum", "operation", _RANGE_GETS),
        fetches=total("kafscale_request_duration_seconds_count", "api", (ApiKey.FETCH.name,)),
        cpu_sec=broker.cpu(),
    )
