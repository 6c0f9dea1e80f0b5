"""`kafscale cost`: the bill of running brokers, by hand-made metrics and by live ones."""

import http.server
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from kafscale.commands.cli import main
from kafscale.formats.object_keys import segment_key
from kafscale.ops import metric_families as families
from kafscale.ops.metrics import Metrics
from kafscale.ops.prices import Operation
from kafscale.settings.broker import load_settings
from kafscale.tools.cost.rates import SECONDS_PER_MONTH
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.metrics_page import scrape
from tests.support.s3_server import s3_server
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_SEC
from tests.tools.cost.scrapes import metrics_of, page_of

pytestmark = pytest.mark.usefixtures("logging_as_before")

GB = 2**30


def cost(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["cost", *arguments], env=environment)


def cost_json(*arguments: str, **environment: str) -> dict[str, Any]:
    result = cost(*arguments, "--json", **environment)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def cells(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line) for line in text.splitlines()]


def counted(broker_id: int = 0, *, puts: int = 0, brokers: int = 1, **settings: str) -> Metrics:
    """A broker that has flushed half as often as it put something, and stores 100 GB of `orders`."""
    metrics, meter = metrics_of(load_settings(settings), broker_id)
    metrics.gauge(families.BROKERS, lambda: brokers)
    for _ in range(puts):
        meter.sent(Operation.PUT_OBJECT, segment_key("default", "orders", 0, 0))
    for _ in range(puts // 10):
        meter.sent(Operation.LIST_OBJECTS, "")
    orders = metrics.topic("orders")
    orders.flushes, orders.batches_in = puts // 2, puts * 2
    metrics.flushes.outcomes["published"] = puts // 2
    metrics.gauge_series(families.TOPIC_STORED_BYTES, lambda: [(("orders",), 100 * GB)])
    metrics.gauge_series(families.TOPIC_PARTITIONS_LED, lambda: [(("orders",), 4)])
    return metrics


def written(path: Path, metrics: Metrics, at_sec: float) -> str:
    """The metrics in a file of that age; returns its path."""
    path.write_text(page_of(metrics))
    os.utime(path, (at_sec, at_sec))
    return str(path)


@pytest.fixture
def two_scrapes(tmp_path: Path) -> tuple[str, str]:
    """Files with scrapes of one broker, 100 s apart: 2,000 PUTs and 200 LISTs between them."""
    now = time.time() + 1000
    return written(tmp_path / "before", counted(puts=1000), now - 100), written(
        tmp_path / "after", counted(puts=3000), now
    )


def test_two_files_give_a_bill_for_people(two_scrapes: tuple[str, str]) -> None:
    before, after = two_scrapes
    result = cost(
        "--metrics", after, "--before", before, "--flush-interval-ms", "5000", "--flushes-per-sec", "1"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "1 broker, at the rates of 100 s; a month has 30 days."
    assert lines[1].startswith("Prices: $0.005 for 1,000 PUT, COPY, POST and LIST, $0.0004 for 1,000 GET")
    rows = cells(result.stdout)
    assert ["PutObject", "20.00", "259.20", "3,000", "0.015000"] in rows
    assert ["ListObjectsV2", "2.00", "25.92", "300", "0.001500"] in rows
    assert ["together", "22.00", "285.12", "3,300", "0.016500"] in rows
    assert ["storage of 100.00 GB", "2.30"] in rows
    assert ["together", "287.42"] in rows
    assert ["orders", "261.50", "91.0%", "259.20", "0.00", "100.00", "2.30", "10.00"] in rows
    assert ["(none)", "25.92", "9.0%", "25.92", "0.00", "0.00", "0.00", "0.00"] in rows
    assert ["500 (now)", "10", "10.00", "285.12"] in rows
    assert ["5000", "10", "10.00", "285.12"] in rows
    # 40 batches a second: 1 / (0.5 + 1/40) flushes a second by the interval alone, and so many PUTs less.
    assert ["500", "1", "1.90", "180.21"] in rows


def test_two_files_give_a_bill_for_programs(two_scrapes: tuple[str, str]) -> None:
    before, after = two_scrapes
    found = cost_json("--metrics", after, "--before", before)
    assert found["dollars_per_month"] == pytest.approx(
        {"requests": 285.12, "storage": 2.3, "together": 287.42}
    )
    by_operation = {one["operation"]: one for one in found["operations"]}
    assert by_operation["PutObject"]["requests_per_second"] == pytest.approx(20)
    assert sum(one["dollars_per_month"] for one in found["operations"]) == pytest.approx(285.12)
    assert [one["topic"] for one in found["topics"]] == ["orders", "(none)"]
    assert sum(one["dollars_per_month"] for one in found["topics"]) == pytest.approx(287.42)
    assert [one["flush_interval_ms"] for one in found["flush_intervals"]] == [
        100, 250, 500, 1000, 2000, 5000, 10_000, 500, 500, 500, 500
    ]  # fmt: skip
    assert [one["flushes_per_sec"] for one in found["flush_intervals"]] == [10.0] * 7 + [0.0, 1.0, 2.0, 4.0]
    assert found["flushes_per_sec"] == 10
    assert found["journal_prices"] == found["prices"]
    assert found["prices"]["1000_puts"] == 0.005
    assert found["flush_interval_ms"] == 500


def test_a_file_alone_gives_the_average_since_the_start(tmp_path: Path) -> None:
    started = scrape_started()
    after = written(tmp_path / "after", counted(puts=1000), started + 500)
    found = cost_json("--metrics", after)
    assert found["brokers"][0]["seconds"] == pytest.approx(500, abs=1)
    assert found["dollars_per_month"]["requests"] == pytest.approx(
        1100 * 5e-6 / 500 * SECONDS_PER_MONTH, rel=0.01
    )


def scrape_started() -> float:
    """When this process, whose metrics the files have, was started."""
    page = page_of(Metrics())
    return float(next(line.split()[1] for line in page.splitlines() if line.startswith("process_start_time")))


def test_brokers_that_are_not_read_are_missed(tmp_path: Path) -> None:
    now = time.time() + 1000
    files = [written(tmp_path / str(number), counted(number, puts=10, brokers=3), now) for number in range(3)]
    one = cost("--metrics", files[0])
    assert one.exit_code == 0
    assert "the cluster has 3 brokers, and --metrics names 1: the rest of the bill is missing" in one.stderr
    everyone = cost(*(argument for file in files for argument in ("--metrics", file)))
    assert (everyone.exit_code, everyone.stderr) == (0, "")
    assert everyone.stdout.startswith("3 brokers, ")


def test_a_restart_between_the_scrapes_is_reported(two_scrapes: tuple[str, str]) -> None:
    before, after = two_scrapes
    os.utime(before, (time.time() + 2000,) * 2)
    os.utime(after, (time.time() + 3000,) * 2)
    result = cost("--metrics", before, "--before", after)
    assert result.exit_code == 0
    assert "broker 0 has been restarted meanwhile" in result.stderr


def test_a_cost_above_the_budget_is_reported(tmp_path: Path) -> None:
    path = written(
        tmp_path / "page", counted(puts=1000, KAFSCALE_COST_BUDGET_PER_MONTH="2.5"), time.time() + 500
    )
    result = cost("--metrics", path)
    assert result.exit_code == 0
    assert "above KAFSCALE_COST_BUDGET_PER_MONTH=2.5" in result.stderr
    assert ["budget", "2.50"] in cells(result.stdout)
    assert cost_json("--metrics", path)["budget_per_month"] == 2.5


def test_many_topics_are_cut_for_people_alone(tmp_path: Path) -> None:
    metrics, meter = metrics_of()
    for number in range(30):
        meter.sent(Operation.PUT_OBJECT, segment_key("default", f"topic-{number}", 0, 0))
    path = written(tmp_path / "page", metrics, time.time() + 100)
    text = cost("--metrics", path).stdout
    assert text.count("topic-") == 20
    assert "and 10 more: --json shows all" in text
    assert len(cost_json("--metrics", path)["topics"]) == 30


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["--metrics", "ftp://host/metrics"], 2, "ftp://host/metrics is not legal: it must be http://"),
        (["--metrics", "http://"], 2, "is not legal"),
        (["--metrics", "http://host:99999"], 2, "is not legal"),
        (["--metrics", ""], 2, "empty"),
        (["--seconds", "-1"], 2, "--seconds"),
        (["--flush-interval-ms", "0"], 2, "--flush-interval-ms"),
        (["--flushes-per-sec", "-1"], 2, "--flushes-per-sec"),
        (["--metrics", "/does/not/exist"], 1, "cannot read /does/not/exist: No such file"),
        (["--metrics", "127.0.0.1:1"], 1, "http://127.0.0.1:1/metrics does not answer"),
        (["--before", "/does/not/exist"], 1, "cannot read /does/not/exist"),
    ],
)
def test_bad_input_is_named_with_what_is_legal(arguments: list[str], status: int, problem: str) -> None:
    result = cost(*arguments)
    assert result.exit_code == status, result.output
    assert problem in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output


def test_credentials_in_a_url_are_not_shown() -> None:
    result = cost("--metrics", "http://user:hidden@host:9093")
    assert result.exit_code == 2
    assert "without a user" in result.stderr
    assert "hidden" not in result.output


def test_a_bad_setting_is_refused_without_a_source() -> None:
    result = cost(KAFSCALE_METRICS_ADDR="nowhere")
    assert result.exit_code == 2
    assert "KAFSCALE_METRICS_ADDR='nowhere' is not legal" in result.stderr


def test_help_explains_the_estimate_and_the_prices() -> None:
    text = cost("--help").output
    for word in ("KAFSCALE_PRICE_*", "1 / (T + 1/B)", "docs/cost.md", "Exit status", "--before FILE"):
        assert word in text


class _Answers(http.server.BaseHTTPRequestHandler):
    body: bytes = b""
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    """An HTTP server with that answer; yields its host and port."""
    handler = type("Answers", (_Answers,), {"body": body, "status": status})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (b"gone", 404, "answers with status 404"),
        (b"<html>", 200, "not in Prometheus' text form"),
        (b"\xff\xfe\x00", 200, "not in Prometheus' text form"),
        (b"# TYPE up gauge\nup 1\n", 200, "no brokers"),
    ],
)
def test_another_server_is_no_broker(body: bytes, status: int, problem: str) -> None:
    with answering(body, status) as server:
        result = cost("--metrics", server, "--seconds", "0")
    assert result.exit_code == 1
    assert problem in result.stderr


# --- live brokers


def produce(broker: KafscaleBroker, *places: tuple[str, int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for topic, partition in places:
        producer.produce(topic, b"value", partition=partition)
    assert producer.flush(PATIENCE_SEC) == 0


def test_a_live_broker_over_a_bucket(tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3") as s3:
        bucket = {name.removeprefix("KAFSCALE_").lower(): value for name, value in s3.settings.items()}
        with running_broker(tmp_path, **bucket, flush_interval_ms=50, price_per_1000_puts=1000) as broker:
            create_topic(broker, "orders", 2)
            create_topic(broker, "bills", 1)
            url = f"http://{broker.host}:{broker.metrics_port}"
            (tmp_path / "before").write_text(broker.http_get("/metrics")[1])
            for _ in range(5):
                produce(broker, ("orders", 0), ("orders", 1), ("bills", 0))
            produce(broker, ("orders", 0))  # without which bills could have as many flushes
            found = cost_json("--metrics", url, "--before", str(tmp_path / "before"), "--seconds", "0")
            page = scrape(broker)
            text = cost("--metrics", url, "--seconds", "0.2")
    puts = page.value("kafscale_object_store_requests_total", operation="PutObject")
    assert page.value("kafscale_request_cost_dollars_total", operation="PutObject") == pytest.approx(puts)
    by_topic = {one["topic"]: one for one in found["topics"]}
    assert by_topic["orders"]["puts_per_month"] > by_topic["bills"]["puts_per_month"] > 0
    assert by_topic["orders"]["stored_bytes"] > by_topic["bills"]["stored_bytes"] > 0
    (own,) = found["brokers"]
    put_dollars = sum(one["puts_per_month"] for one in found["topics"]) / SECONDS_PER_MONTH * own["seconds"]
    flushes = sum(one["flushes_per_second"] for one in found["topics"]) * own["seconds"]
    assert flushes == pytest.approx(sum(page.by_label("kafscale_topic_flushes_total", "topic").values()))
    entries = page.value("kafscale_flushes_total", outcome="published")
    assert round(put_dollars, 6) >= entries > 0, "each flush puts an entry"
    assert entries <= flushes, "which may have slices of several topics"
    assert text.exit_code == 0, text.output
    assert "orders" in text.stdout


def test_a_live_broker_over_a_folder(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        create_topic(broker, "orders", 1)
        produce(broker, ("orders", 0))
        result = cost("--seconds", "0", KAFSCALE_METRICS_ADDR=f"0.0.0.0:{broker.metrics_port}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "No request to a bucket has been counted" in result.stdout
    assert ["together", "0.00", "0.00", "0", "0.000000"] in cells(result.stdout)
