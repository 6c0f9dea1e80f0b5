"""Scrapes of brokers that tests make up."""

from typing import Any

from kafscale.objects.request_meter import RequestMeter, register_price_gauges
from kafscale.ops.metric_export import render
from kafscale.ops.metric_families import BROKERS, FLUSH_BUDGET
from kafscale.ops.metrics import Metrics
from kafscale.ops.prices import Prices
from kafscale.settings.broker import Settings
from kafscale.tools.cost.scrape import Scrape, TopicCounts

STARTED_SEC = 1_700_000_000.0


def scrape(at_sec: float = 100.0, **more: Any) -> Scrape:
    """A broker's scrape, so many seconds after its start, in which nothing is counted."""
    fields: dict[str, Any] = {
        "source": "broker",
        "at_sec": STARTED_SEC + at_sec,
        "started_sec": STARTED_SEC,
        "broker_id": "0",
        "version": "1.2.3",
        "cluster_brokers": 1,
        "prices": Prices(),
        "budget": None,
        "flush_interval_sec": 0.5,
        "requests": {},
        "dollars": {},
        "topics": {},
        "journal_prices": Prices(),
        "flushes_per_sec": 4.0,
        "entries": 0.0,
        "followed_entries": 0.0,
    }
    return Scrape(**fields | more)


def topic(**counts: float) -> TopicCounts:
    """A topic's counts, 0 where nothing is said."""
    return TopicCounts(**counts)


def metrics_of(settings: Settings | None = None, broker_id: int = 0) -> tuple[Metrics, RequestMeter]:
    """Metrics as a broker exports them, and what counts its requests into them."""
    settings = settings or Settings()
    metrics = Metrics(broker_id=broker_id, version="1.2.3")
    register_price_gauges(metrics, settings)
    metrics.gauge(BROKERS, lambda: 1)
    metrics.gauge(FLUSH_BUDGET, lambda: 10)
    return metrics, RequestMeter(metrics, Prices.from_settings(settings), settings.s3_namespace)


def page_of(metrics: Metrics) -> str:
    """The page that a broker answers."""
    return render(metrics).decode()
