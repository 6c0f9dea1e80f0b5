"""Every request to a bucket, counted where it is sent, with its price and the topics that cause it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kafscale.formats.object_keys import topic_of_key
from kafscale.ops import metric_families
from kafscale.ops.metrics import NO_TOPIC, Metrics
from kafscale.ops.prices import PRICE_CLASSES, Operation, PriceClass, Prices
from kafscale.ops.request_costs import StoreRequests
from kafscale.settings.broker import Settings

SharedCost = Callable[[str, Iterable[tuple[str, int]]], AbstractContextManager[None]]
"""`RequestMeter.shared`, for those who write objects that serve several topics."""


def unshared(key: str, slices: Iterable[tuple[str, int]]) -> AbstractContextManager[None]:
    """A `SharedCost` where requests cost nothing."""
    return nullcontext()


class RequestLog(Protocol):
    """Notes requests to a bucket as they are made."""

    def sent(self, operation: Operation, key: str, size_bytes: int = 0) -> None:
        """A request for `key`, an object's or a prefix, is being sent with `size_bytes` of content.

        One call for each attempt. `key` is empty where there are several.
        """

    def received(self, operation: Operation, key: str, size_bytes: int) -> None:
        """Such a request was answered with so many bytes of content."""


class Unmetered:
    """A `RequestLog` for processes without metrics."""

    def sent(self, operation: Operation, key: str, size_bytes: int = 0) -> None:
        """`RequestLog.sent`."""

    def received(self, operation: Operation, key: str, size_bytes: int) -> None:
        """`RequestLog.received`."""


@dataclass(frozen=True, slots=True)
class Share:
    """A topic's part of one object: of what a request costs, and of what the bytes cost."""

    topic: str
    of_request: float
    of_bytes: float


def shares(slices: Iterable[tuple[str, int]]) -> tuple[Share, ...]:
    """Each topic's part of an object that is made of slices: the topic and the bytes of each.

    A request costs the same whatever its size, so half of its price follows the bytes and half the number of
    slices: many small slices cost what they cause, and so does a large one. Both parts sum up to 1, unless there are
    no slices.
    """
    counts: dict[str, tuple[int, int]] = {}
    for topic, size_bytes in slices:
        count, total = counts.get(topic, (0, 0))
        counts[topic] = count + 1, total + size_bytes
    all_slices = sum(count for count, _ in counts.values())
    all_bytes = sum(total for _, total in counts.values())
    found = []
    for topic, (count, total) in counts.items():
        of_slices = count / all_slices
        of_bytes = total / all_bytes if all_bytes else of_slices
        found.append(Share(topic, (of_slices + of_bytes) / 2, of_bytes))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Tariff:
    """The counter and the price of one operation. Looked up once for a request: an operation is slow to hash."""

    counts: StoreRequests
    dollars: float
    is_put: bool
    is_list: bool


class RequestMeter:
    """A `RequestLog` that counts into `metrics`. Only for the event loop's thread."""

    def __init__(self, metrics: Metrics, prices: Prices, namespace: str) -> None:
        self._metrics = metrics
        self._namespace = namespace
        # Each is exported from the start, so that its rate is known from its first request on.
        self._tariffs = {
            operation: _Tariff(
                metrics.requests(operation),
                prices.of_request(operation),
                is_put=PRICE_CLASSES[operation] is PriceClass.PUT,
                is_list=operation is Operation.LIST_OBJECTS,
            )
            for operation in Operation
        }
        self._of_written_byte = prices.of_written(1)
        self._of_read_byte = prices.of_read(1)
        self._shared: dict[str, tuple[Share, ...]] = {}

    def sent(self, operation: Operation, key: str, size_bytes: int = 0) -> None:
        """`RequestLog.sent`."""
        tariff = self._tariffs[operation]
        tariff.counts.count += 1
        self._charge(tariff, key, tariff.dollars, size_bytes * self._of_written_byte)

    def received(self, operation: Operation, key: str, size_bytes: int) -> None:
        """`RequestLog.received`."""
        if self._of_read_byte:
            self._charge(self._tariffs[operation], key, 0.0, size_bytes * self._of_read_byte)

    @contextmanager
    def shared(self, key: str, slices: Iterable[tuple[str, int]]) -> Iterator[None]:
        """Charge the block's requests for `key`, attempts and hedged ones included, to the topics of its slices.

        `slices`: the topic and the bytes of each slice of the object. For an object that serves several topics,
        whose key names none.
        """
        mine = self._shared[key] = shares(slices)
        try:
            yield
        finally:
            if self._shared.get(key) is mine:
                del self._shared[key]

    def _charge(self, tariff: _Tariff, key: str, request_dollars: float, byte_dollars: float) -> None:
        dollars = request_dollars + byte_dollars
        if not dollars:
            return
        tariff.counts.dollars += dollars
        found = self._shared.get(key) if self._shared else None
        if not found:
            self._charge_topic(tariff, topic_of_key(self._namespace, key), dollars)
            return
        for share in found:
            part = share.of_request * request_dollars + share.of_bytes * byte_dollars
            self._charge_topic(tariff, share.topic, part)

    def _charge_topic(self, tariff: _Tariff, topic: str | None, dollars: float) -> None:
        if topic is None or (tariff.is_list and topic not in self._metrics.topic_costs):
            # A deleted topic's objects are still listed, when it is to be exported no longer.
            topic = NO_TOPIC
        costs = self._metrics.costs(topic)
        if tariff.is_put:
            costs.put += dollars
        else:
            costs.get += dollars


def register_price_gauges(metrics: Metrics, settings: Settings) -> None:
    """Export the prices, the budget, and the flush interval that decides how many requests there are."""
    prices = Prices.from_settings(settings)
    for unit, dollars in prices.by_unit().items():
        metrics.gauge(metric_families.PRICE, partial(float, dollars), unit=unit)
    if settings.journal_bucket is not None:
        for unit, dollars in Prices.of_journals(settings).by_unit().items():
            if unit != "gb_month":
                metrics.gauge(metric_families.JOURNAL_PRICE, partial(float, dollars), unit=unit)
    metrics.gauge(metric_families.FLUSH_INTERVAL, lambda: settings.flush_interval_ms / 1000)
    budget = settings.cost_budget_per_month
    if budget is not None:
        metrics.gauge(metric_families.COST_BUDGET, partial(float, budget))
