"""A broker beside a replica of its bucket: two real S3 servers, one of them late, stopped, killed and outdated."""

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.objects.bucket.config import open_bucket
from kafscale.settings.broker import load_settings
from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.metrics_page import MetricsPage, scrape
from tests.support.s3_server import S3Server, s3_server
from tests.support.sealing import WORTHWHILE_AT_ONCE, wait_until_sealed, worthwhile_value
from tests.support.topics import create_topic, delete_topic, unique_name
from tests.support.waiting import wait_until

SEGMENTS = 12
NOT_REPLICATED = 3
OBJECTS = 2
"""Of each segment that a first read asks for: its index, which is kept, and its records."""
SUFFIXES = (".index", ".kfs")
READS = "kafscale_segment_store_reads_total"
MISSES = "kafscale_segment_store_misses_total"
PASSED_OVER = "kafscale_segment_store_passed_over_total"
ERRORS = "kafscale_segment_store_errors_total"


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "primary") as server:
        yield server


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "replica", "nearer") as server:
        yield server


@pytest.fixture
def broker(primary: S3Server, replica: S3Server, tmp_path: Path) -> Iterator[KafscaleBroker]:
    settings = {name.removeprefix("KAFSCALE_").lower(): value for name, value in primary.settings.items()}
    started = KafscaleBroker(
        tmp_path,
        flush_interval_ms=0,
        cache_size=0,
        readahead_segments=0,
        merge_bytes_per_sec=0,
        s3_read_bucket=replica.bucket,
        s3_read_endpoint=replica.endpoint,
        **WORTHWHILE_AT_ONCE,
        **settings,
    )
    try:
        started.start()
        yield started
        started.stop()
    finally:
        started.close()


def produce(broker: KafscaleBroker, topic: str, generation: str) -> list[tuple[int, bytes | None]]:
    """One segment for each record; returns what a consumer is to see."""
    expected: list[tuple[int, bytes | None]] = [
        (number, worthwhile_value(f"{generation} {number:03d}")) for number in range(SEGMENTS)
    ]
    with wire.connect(broker) as connection:
        for offset, value in expected:
            answer = wire.produce(connection, topic, 0, wire.batch([value]))
            assert (answer.error_code, answer.base_offset) == (0, offset)
            wait_until_sealed(broker)
    return expected


def written(broker: KafscaleBroker) -> tuple[str, list[tuple[int, bytes | None]]]:
    """A new topic with its segments, and what a consumer is to see."""
    topic = unique_name()
    create_topic(broker, topic)
    return topic, produce(broker, topic, "first")


def consume(broker: KafscaleBroker, topic: str, count: int = SEGMENTS) -> list[tuple[int, bytes | None]]:
    """That many records, from the beginning, one segment after the other."""
    found: list[tuple[int, bytes | None]] = []
    with wire.connect(broker) as connection:
        while len(found) < count:
            part = wire.fetch(connection, topic, {0: len(found)}, max_bytes=1)[0]
            assert part.error_code == 0
            found += wire.records_in(part.records)
    return found


def replicate(primary: S3Server, replica: S3Server, topic: str) -> None:
    """Copy the topic's objects as a replication does that is late: its newest segments are missing."""

    async def copy() -> None:
        source = open_bucket(load_settings(primary.settings))
        target = open_bucket(load_settings(replica.settings))
        keys = [info.key async for info in source.list(f"default/{topic}/") if info.key.endswith(SUFFIXES)]
        assert len(keys) == SEGMENTS * OBJECTS
        for key in keys[: -NOT_REPLICATED * OBJECTS]:
            await target.put(key, [await source.get(key)])
        await source.close()
        await target.close()

    asyncio.run(copy())


def of(page: MetricsPage, name: str) -> dict[str, float]:
    return {store: value for (store,), value in page.by_label(name, "store").items()}


def test_segments_missing_at_replica_come_from_primary(
    broker: KafscaleBroker, primary: S3Server, replica: S3Server
) -> None:
    topic, expected = written(broker)
    replicate(primary, replica, topic)
    assert consume(broker, topic) == expected
    page = scrape(broker)
    assert of(page, MISSES) == {"replica": NOT_REPLICATED * OBJECTS, "primary": 0}
    assert of(page, READS) == {"replica": SEGMENTS * OBJECTS, "primary": NOT_REPLICATED * OBJECTS}
    assert page.value("kafscale_segment_store_bytes_total", store="replica") > 0
    assert page.value("kafscale_replica_passed_over") == 0
    # Nothing was written there, and nothing asked about.
    for suffix in SUFFIXES:
        found = [key for key in replica.stored_files() if key.endswith(suffix)]
        assert len(found) == SEGMENTS - NOT_REPLICATED
    assert not [key for key in replica.stored_files() if not key.endswith(SUFFIXES)]


def test_hanging_replica_costs_one_wait_and_is_used_again(
    broker: KafscaleBroker, primary: S3Server, replica: S3Server
) -> None:
    topic, expected = written(broker)
    replicate(primary, replica, topic)
    assert consume(broker, topic) == expected
    replica.pause()
    began = time.monotonic()
    for _ in range(3):
        assert consume(broker, topic) == expected
    took_sec = time.monotonic() - began
    page = scrape(broker)
    # One read waited, of all that were made: one after the other they would have waited for half a minute.
    assert page.by_label(ERRORS, "store", "error") == {("replica", "TimeoutError"): 1}
    assert took_sec < 10
    assert of(page, PASSED_OVER) == {"replica": 3 * SEGMENTS - 1, "primary": 0}
    assert broker.ready()
    # Neither do producers notice.
    with wire.connect(broker) as connection:
        assert wire.produce(connection, topic, 0, wire.batch([b"more"])).error_code == 0
    replica.resume()

    def is_back() -> bool:
        assert consume(broker, topic)[:SEGMENTS] == expected
        return scrape(broker).value("kafscale_replica_passed_over") == 0

    wait_until(is_back, "the replica is read from again")
    before = of(scrape(broker), READS)["replica"]
    assert consume(broker, topic)[:SEGMENTS] == expected
    assert of(scrape(broker), READS)["replica"] >= before + SEGMENTS - NOT_REPLICATED


def test_consumers_continue_without_a_replica(
    broker: KafscaleBroker, primary: S3Server, replica: S3Server
) -> None:
    topic, expected = written(broker)
    replicate(primary, replica, topic)
    replica.kill9()
    began = time.monotonic()
    assert consume(broker, topic) == expected
    assert time.monotonic() - began < 5
    assert scrape(broker).value(ERRORS, store="replica", error="StoreUnavailableError") == 1
    broker.restart()
    assert consume(broker, topic) == expected


def test_what_the_replica_has_is_read_while_the_primary_is_away(
    broker: KafscaleBroker, primary: S3Server, replica: S3Server
) -> None:
    topic, expected = written(broker)
    replicate(primary, replica, topic)
    primary.pause()
    try:
        replicated = SEGMENTS - NOT_REPLICATED
        assert consume(broker, topic, replicated) == expected[:replicated]
        assert of(scrape(broker), READS) == {"replica": replicated * OBJECTS, "primary": 0}
    finally:
        primary.resume()
    assert consume(broker, topic) == expected


def test_a_bucket_that_is_not_there_is_passed_over(
    broker: KafscaleBroker, primary: S3Server, replica: S3Server
) -> None:
    topic, expected = written(broker)
    shutil.rmtree(replica.bucket_folder)
    assert consume(broker, topic) == expected
    assert scrape(broker).value(ERRORS, store="replica", error="StoreRefusedError") == 1
    assert "NoSuchBucket" in broker.log_tail()


def test_objects_of_deleted_topic_are_not_its_namesakes(
    broker: KafscaleBroker, primary: S3Server, replica: S3Server
) -> None:
    """Replication does not delete, as a rule, and the new topic's objects have the same keys."""
    topic, _ = written(broker)
    replicate(primary, replica, topic)
    delete_topic(broker, topic)
    create_topic(broker, topic)
    expected = produce(broker, topic, "other")
    assert consume(broker, topic) == expected
    assert of(scrape(broker), MISSES)["replica"] == NOT_REPLICATED * OBJECTS
