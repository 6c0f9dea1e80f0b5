"""A broker's metrics, read for what they say of costs."""

from dataclasses import asdict

import pytest

from kafscale.formats.object_keys import segment_key
from kafscale.ops import metric_families as families
from kafscale.ops.prices import Operation, Prices
from kafscale.settings.broker import load_settings
from kafscale.tools.cost.scrape import ScrapeError, parse_scrape
from tests.tools.cost.scrapes import metrics_of, page_of

ODD_TOPIC = 'a"b\\c'


def test_a_page_is_read_whole() -> None:
    settings = load_settings({"KAFSCALE_PRICE_PER_GB_READ": "0.01", "KAFSCALE_FLUSH_INTERVAL_MS": "250"})
    metrics, meter = metrics_of(settings, broker_id=7)
    for _ in range(3):
        meter.sent(Operation.PUT_OBJECT, segment_key("default", ODD_TOPIC, 0, 0))
    meter.sent(Operation.GET_OBJECT, segment_key("default", ODD_TOPIC, 0, 0))
    meter.sent(Operation.LIST_OBJECTS, "")
    counts = metrics.topic(ODD_TOPIC)
    counts.flushes, counts.batches_in, counts.bytes_in = 5, 6, 7
    metrics.flushes.outcomes.update({"published": 8, "failed": 100})
    metrics.journal.followed_entries = 11
    metrics.gauge(families.BROKERS, lambda: 3)
    metrics.gauge_series(families.TOPIC_STORED_BYTES, lambda: [((ODD_TOPIC,), 9)])
    metrics.gauge_series(families.TOPIC_PARTITIONS_LED, lambda: [((ODD_TOPIC,), 10)])
    found = parse_scrape("there", page_of(metrics), 12.5)
    assert (found.source, found.at_sec, found.broker_id, found.version) == ("there", 12.5, "7", "1.2.3")
    assert found.cluster_brokers == 3
    assert found.prices == Prices(per_gb_read=0.01)
    assert found.flush_interval_sec == 0.25
    assert found.requests.keys() == set(Operation)
    assert {name: count for name, count in found.requests.items() if count} == {
        "PutObject": 3,
        "GetObject": 1,
        "ListObjectsV2": 1,
    }
    assert found.dollars["PutObject"] == pytest.approx(3 * 5e-6)
    assert asdict(found.topics[ODD_TOPIC]) == pytest.approx(
        {
            "put_dollars": 3 * 5e-6,
            "get_dollars": 4e-7,
            "flushes": 5,
            "batches": 6,
            "bytes_in": 7,
            "stored_bytes": 9,
            "partitions": 10,
        }
    )
    assert found.topics["(none)"].put_dollars == pytest.approx(5e-6)
    assert (found.entries, found.followed_entries, found.flushes_per_sec) == (8, 11, 10)
    assert found.journal_prices == found.prices
    assert found.started_sec > 1_600_000_000


def test_a_broker_with_a_folder_has_no_costs() -> None:
    metrics, _ = metrics_of()
    metrics.store_requests.clear()
    found = parse_scrape("there", page_of(metrics), 0)
    assert (found.requests, found.dollars, found.topics) == ({}, {}, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not in Prometheus' text form"),
        ("<html>not found</html>", "not in Prometheus' text form"),
        ("kafscale_topic_flushes_total{topic=", "not in Prometheus' text form"),
        ('kafscale_topic_flushes_total{topic="a"} many\n', "not in Prometheus' text form"),
        ("# HELP up 1 if it is up.\nup 1\n", "no brokers"),
    ],
)
def test_what_is_no_page_of_a_broker_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ScrapeError, match=problem) as refused:
        parse_scrape("http://there:1/metrics", text, 0)
    assert str(refused.value).startswith("http://there:1/metrics ")
    assert len(str(refused.value)) < 300


def test_pages_of_two_brokers_in_one_are_refused() -> None:
    page = "".join(f'kafscale_broker_info{{broker_id="{number}",version="1"}} 1\n' for number in range(2))
    with pytest.raises(ScrapeError, match="2 brokers"):
        parse_scrape("there", page, 0)


def test_a_broker_without_prices_is_to_be_upgraded() -> None:
    with pytest.raises(ScrapeError, match=r"version 0\.0\.1, which does not export its prices: upgrade it"):
        parse_scrape("there", 'kafscale_broker_info{broker_id="0",version="0.0.1"} 1\n', 0)


def test_prices_of_the_journal_bucket_are_its_own() -> None:
    bucket = {"KAFSCALE_S3_BUCKET": "records", "KAFSCALE_JOURNAL_BUCKET": "journals"}
    settings = load_settings({**bucket, "KAFSCALE_JOURNAL_PRICE_PER_1000_PUTS": "3"})
    found = parse_scrape("there", page_of(metrics_of(settings)[0]), 1.0)
    assert found.prices == Prices()
    assert found.journal_prices == Prices(per_1000_puts=3)
