"""A broker's counters of its flushes, from its metrics."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from bench.kafscale_broker import Kafscale


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushCounts:
    """Published flushes and transactions at the metadata store, since the broker's start."""

    flushes: float
    transactions: float

    def __sub__(self, other: "FlushCounts") -> "FlushCounts":
        return FlushCounts(
            flushes=self.flushes - other.flushes, transactions=self.transactions - other.transactions
        )


def flush_counts(broker: Kafscale) -> FlushCounts:
    """The counters now."""
    flushes = transactions = 0.0
    for family in text_string_to_metric_families(broker.metrics()):
        for sample in family.samples:
            if sample.name == "kafscale_flushes_total" and sample.labels["outcome"] == "published":
                flushes += sample.value
            elif (
                sample.name == "kafscale_metadata_store_duration_seconds_count"
                and sample.labels["operation"] == "transact"
            ):
                transactions += sample.value
    return FlushCounts(flushes=flushes, transactions=transactions)
