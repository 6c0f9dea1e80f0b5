"""From two scrapes of each broker to dollars a second and a month, of all of them together. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from kafscale.ops.metrics import NO_TOPIC
from kafscale.ops.prices import DAYS_PER_MONTH, Prices
from kafscale.tools.cost.scrape import Scrape, ScrapeError, TopicCounts

SECONDS_PER_MONTH: Final = DAYS_PER_MONTH * 86_400

_CLOCK_SEC: Final = 2.0
"""A start is computed from the machine's, which its clock moves by as much."""

_NOW: Final = ("stored_bytes", "partitions")
"""Fields of `TopicCounts` that are as they are now, the others grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRate:
    """One broker: how long it was looked at, and its dollars a second. `restarted`: since its start only.

    `entries`, `batches`, `bytes_in`: a second; an entry is a flush.
    """

    broker_id: str
    source: str
    seconds: float
    dollars: float
    restarted: bool
    entries: float = 0.0
    batches: float = 0.0
    bytes_in: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The brokers together, a second. `topics`: with the dollars that no topic has caused under `NO_TOPIC`.

    `cluster_brokers`: how many the cluster has. `budget`: dollars a month, if any. `total_requests`,
    `total_dollars`: since the brokers' starts. Of `topics`, stored bytes and partitions are as they are now.
    """

    prices: Prices
    budget: float | None
    flush_interval_sec: float
    brokers: tuple[BrokerRate, ...]
    cluster_brokers: int
    requests: Mapping[str, float]
    dollars: Mapping[str, float]
    total_requests: Mapping[str, float]
    total_dollars: Mapping[str, float]
    topics: Mapping[str, TopicCounts]
    journal_prices: Prices
    flushes_per_sec: float
    followed_entries: float

    @property
    def request_dollars(self) -> float:
        """All requests' dollars a second."""
        return sum(self.dollars.values())

    @property
    def stored_bytes(self) -> float:
        """The bytes of all topics now."""
        return sum(topic.stored_bytes for topic in self.topics.values())


@dataclass(slots=True)
class _Sums:
    requests: dict[str, float] = field(default_factory=dict)
    dollars: dict[str, float] = field(default_factory=dict)
    total_requests: dict[str, float] = field(default_factory=dict)
    total_dollars: dict[str, float] = field(default_factory=dict)
    topics: dict[str, TopicCounts] = field(default_factory=dict)
    followed_entries: float = 0.0


def rates(before: Iterable[Scrape], after: Iterable[Scrape]) -> Rates:
    """The rates between scrapes of the same brokers; of a broker that started meanwhile, since its start.

    `after` has at least one, and of each broker one. Raises `ScrapeError` if not, if brokers have different prices,
    and where no time lies between two scrapes.
    """
    earlier = {scrape.broker_id: scrape for scrape in before}
    now = _each_once(after)
    sums, brokers = _Sums(), []
    for scrape in now:
        old = earlier.get(scrape.broker_id)
        if old is not None and not _is_same_run(old, scrape):
            old = None
        seconds = scrape.at_sec - (scrape.started_sec if old is None else old.at_sec)
        if seconds <= 0:
            raise ScrapeError(
                f"{scrape.source}: no time has passed between the two scrapes; the earlier one has to be older"
            )
        dollars = _add(sums, old, scrape, seconds)
        brokers.append(
            BrokerRate(
                broker_id=scrape.broker_id,
                source=scrape.source,
                seconds=seconds,
                dollars=dollars,
                restarted=old is None and scrape.broker_id in earlier,
                entries=(scrape.entries - (0 if old is None else old.entries)) / seconds,
                batches=_topic_rate("batches", old, scrape, seconds),
                bytes_in=_topic_rate("bytes_in", old, scrape, seconds),
            )
        )
    unexplained = sum(sums.dollars.values()) - sum(
        topic.put_dollars + topic.get_dollars for topic in sums.topics.values()
    )
    if unexplained > 1e-9 * sum(sums.dollars.values()):
        # A topic that was deleted meanwhile: its series have ended, the requests were made.
        sums.topics.setdefault(NO_TOPIC, TopicCounts()).put_dollars += unexplained
    return Rates(
        prices=now[0].prices,
        budget=max((scrape.budget for scrape in now if scrape.budget is not None), default=None),
        flush_interval_sec=now[0].flush_interval_sec,
        brokers=tuple(brokers),
        cluster_brokers=max(scrape.cluster_brokers for scrape in now),
        requests=sums.requests,
        dollars=sums.dollars,
        total_requests=sums.total_requests,
        total_dollars=sums.total_dollars,
        topics=sums.topics,
        journal_prices=now[0].journal_prices,
        flushes_per_sec=now[0].flushes_per_sec,
        followed_entries=sums.followed_entries,
    )


def _each_once(scrapes: Iterable[Scrape]) -> list[Scrape]:
    found: dict[str, Scrape] = {}
    for scrape in scrapes:
        other = found.setdefault(scrape.broker_id, scrape)
        if other is not scrape:
            raise ScrapeError(
                f"{other.source} and {scrape.source} are both broker {scrape.broker_id}: name each broker once"
            )
        first = next(iter(found.values()))
        if scrape.prices != first.prices:
            raise ScrapeError(
                f"{first.source} and {scrape.source} have different prices: give all brokers the same "
                "KAFSCALE_PRICE_* settings"
            )
    if not found:
        raise ScrapeError("no broker is named")
    return list(found.values())


def _is_same_run(old: Scrape, new: Scrape) -> bool:
    """True if the counters of `new` go on from those of `old`."""
    if abs(old.started_sec - new.started_sec) > _CLOCK_SEC:
        return False
    return all(new.requests.get(operation, 0) >= count for operation, count in old.requests.items())


def _add(sums: _Sums, old: Scrape | None, new: Scrape, seconds: float) -> float:
    """Add a broker's rates; returns its dollars a second."""
    _add_rates(sums.requests, {} if old is None else old.requests, new.requests, seconds)
    mine: dict[str, float] = {}
    _add_rates(mine, {} if old is None else old.dollars, new.dollars, seconds)
    _add_rates(sums.dollars, {}, mine, 1)
    _add_rates(sums.total_requests, {}, new.requests, 1)
    _add_rates(sums.total_dollars, {}, new.dollars, 1)
    sums.followed_entries += (new.followed_entries - (0 if old is None else old.followed_entries)) / seconds
    for name, counts in new.topics.items():
        _add_topic(
            sums.topics.setdefault(name, TopicCounts()),
            None if old is None else old.topics.get(name),
            counts,
            seconds,
        )
    return sum(mine.values())


def _topic_rate(field: str, old: Scrape | None, new: Scrape, seconds: float) -> float:
    """The rate of a counter over all topics; one that was deleted and created again begins from nothing."""
    total = 0.0
    for name, counts in new.topics.items():
        value: float = getattr(counts, field)
        before: float = getattr(old.topics[name], field) if old is not None and name in old.topics else 0.0
        total += value - before if value >= before else value
    return total / seconds


def _add_rates(
    sums: dict[str, float], old: Mapping[str, float], new: Mapping[str, float], seconds: float
) -> None:
    for name, value in new.items():
        sums[name] = sums.get(name, 0.0) + (value - old.get(name, 0.0)) / seconds


def _add_topic(sums: TopicCounts, old: TopicCounts | None, new: TopicCounts, seconds: float) -> None:
    for one in fields(TopicCounts):
        value: float = getattr(new, one.name)
        if one.name not in _NOW:
            before: float = 0.0 if old is None else getattr(old, one.name)
            # A topic that was deleted and created again begins from nothing.
            value = (value - before if value >= before else value) / seconds
        setattr(sums, one.name, getattr(sums, one.name) + value)
