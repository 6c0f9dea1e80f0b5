"""One broker's costs, read from its metrics in Prometheus' text form. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kafscale.errors import KafscaleError
from kafscale.ops import journal_metric_families
from kafscale.ops import metric_families as families
from kafscale.ops.prices import Prices

_STARTED: Final = "process_start_time_seconds"
_WANTED: Final = (
    families.BROKER_INFO.name,
    families.BROKERS.name,
    families.PRICE.name,
    families.COST_BUDGET.name,
    families.FLUSH_INTERVAL.name,
    families.FLUSH_BUDGET.name,
    families.FLUSHES.name,
    families.JOURNAL_PRICE.name,
    journal_metric_families.FOLLOWED_ENTRIES.name,
    families.OBJECT_STORE_REQUESTS.name,
    families.REQUEST_COST.name,
    families.TOPIC_REQUEST_COST.name,
    families.TOPIC_STORED_BYTES.name,
    families.TOPIC_PARTITIONS_LED.name,
    families.TOPIC_FLUSHES.name,
    families.TOPIC_BATCHES_IN.name,
    families.TOPIC_BYTES_IN.name,
    _STARTED,
)


class ScrapeError(KafscaleError):
    """Metrics that could not be had, or that say nothing of costs."""


@dataclass(slots=True, kw_only=True)
class TopicCounts:
    """One topic at one broker. Counters since the broker's start; `stored_bytes`, `partitions`: as they are now."""

    put_dollars: float = 0.0
    get_dollars: float = 0.0
    flushes: float = 0.0
    batches: float = 0.0
    bytes_in: float = 0.0
    stored_bytes: float = 0.0
    partitions: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One broker at one moment. `at_sec`, `started_sec`: seconds since 1970. Counters are since the start.

    `entries`: flushes, each of which is one PUT; `followed_entries`: those of others that were read.
    `cluster_brokers`: the live brokers that it knows of. `budget`: the cluster's dollars a month, None without.
    """

    source: str
    at_sec: float
    started_sec: float
    broker_id: str
    version: str
    cluster_brokers: int
    prices: Prices
    budget: float | None
    flush_interval_sec: float
    requests: Mapping[str, float]
    dollars: Mapping[str, float]
    topics: Mapping[str, TopicCounts]
    journal_prices: Prices
    flushes_per_sec: float
    entries: float
    followed_entries: float


_TOPIC_FIELDS: Final = {
    families.TOPIC_STORED_BYTES.name: "stored_bytes",
    families.TOPIC_PARTITIONS_LED.name: "partitions",
    families.TOPIC_FLUSHES.name: "flushes",
    families.TOPIC_BATCHES_IN.name: "batches",
    families.TOPIC_BYTES_IN.name: "bytes_in",
}


def parse_scrape(source: str, text: str, at_sec: float) -> Scrape:
    """The costs in the metrics of one broker, taken at `at_sec`.

    `source`: where they come from, for errors. Raises `ScrapeError`.
    """
    by_name: dict[str, list[Sample]] = {name: [] for name in _WANTED}
    try:
        for sample in _samples(text):
            by_name[sample.name].append(sample)
    except (ValueError, KeyError, IndexError) as problem:
        raise ScrapeError(
            f"{source} is not in Prometheus' text form: {_shortened(str(problem))}"
        ) from problem
    brokers = by_name[families.BROKER_INFO.name]
    if len(brokers) != 1:
        raise ScrapeError(
            f"{source} has the metrics of {len(brokers) or 'no'} brokers: name the /metrics of one broker, such as "
            "http://host:9093/metrics, or a file with what it answers"
        )
    broker = brokers[0].labels
    try:
        prices = Prices.from_units(_by_label(by_name[families.PRICE.name], "unit"))
        return Scrape(
            source=source,
            at_sec=at_sec,
            started_sec=_value(by_name, _STARTED, at_sec),
            broker_id=broker["broker_id"],
            version=broker["version"],
            cluster_brokers=int(_value(by_name, families.BROKERS.name, 1)),
            prices=prices,
            budget=budgets[0].value if (budgets := by_name[families.COST_BUDGET.name]) else None,
            flush_interval_sec=by_name[families.FLUSH_INTERVAL.name][0].value,
            requests=_by_label(by_name[families.OBJECT_STORE_REQUESTS.name], "operation"),
            dollars=_by_label(by_name[families.REQUEST_COST.name], "operation"),
            topics=_topics(by_name),
            journal_prices=_journal_prices(by_name, prices),
            flushes_per_sec=by_name[families.FLUSH_BUDGET.name][0].value,
            entries=_by_label(by_name[families.FLUSHES.name], "outcome").get("published", 0.0),
            followed_entries=_value(by_name, journal_metric_families.FOLLOWED_ENTRIES.name, 0.0),
        )
    except (KeyError, IndexError) as problem:
        version = _shortened(broker.get("version", "unknown"))
        raise ScrapeError(
            f"{source} is a broker of version {version}, which does not export its prices: upgrade it"
        ) from problem


def _samples(text: str) -> Iterator[Sample]:
    """Those of interest; parsing takes longer than the rest, and large clusters export many thousand others."""
    wanted = [line for line in text.splitlines() if line.startswith(_WANTED)]
    if not wanted and not text.lstrip().startswith("#"):
        raise ValueError("it has no metrics of a Kafscale broker")
    for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
        yield from (sample for sample in family.samples if sample.name in _WANTED)


def _journal_prices(by_name: Mapping[str, list[Sample]], prices: Prices) -> Prices:
    """Those of the journal bucket; the bucket's where there is none."""
    units = _by_label(by_name[families.JOURNAL_PRICE.name], "unit")
    return Prices.from_units({**prices.by_unit(), **units})


def _topics(by_name: Mapping[str, list[Sample]]) -> dict[str, TopicCounts]:
    topics: dict[str, TopicCounts] = {}
    for name, field in _TOPIC_FIELDS.items():
        for topic, value in _by_label(by_name[name], "topic").items():
            setattr(topics.setdefault(topic, TopicCounts()), field, value)
    for sample in by_name[families.TOPIC_REQUEST_COST.name]:
        counts = topics.setdefault(sample.labels["topic"], TopicCounts())
        if sample.labels["class"] == "put":
            counts.put_dollars = sample.value
        else:
            counts.get_dollars = sample.value
    return topics


def _by_label(samples: list[Sample], label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in samples}


def _value(by_name: Mapping[str, list[Sample]], name: str, default: float) -> float:
    samples = by_name[name]
    return samples[0].value if samples else default


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}..."
