"""Clients with quotas: Java, librdkafka and kafka-python keep to them, and others are not slowed meanwhile.

Rates are measured over eleven windows of a second, the default. tests/server/test_throttled_rates.py has the same
in virtual time, over many spans.
"""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.compat.conftest import NewTopic, Peer
from tests.support import java as tools
from tests.support import librdkafka
from tests.support.java import ToolResult, ToolServer
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC

RATE = 400_000
RECORD_BYTES, RECORDS = 10_000, 640
VALUES = [random.Random(number).randbytes(RECORD_BYTES) for number in range(RECORDS)]
"""Bytes count as they are stored: these do not become fewer."""

EXPECTED_SEC = 11
"""A client has ten windows' worth at once, and the rest when these windows are over."""


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


SetQuota = Callable[..., str]


@pytest.fixture
def limited(java: ToolServer, broker: Peer) -> Iterator[SetQuota]:
    """Gives a new client id with these quotas, which end with the test."""
    given: list[tuple[str, dict[str, object]]] = []

    def alter(client_id: str, *change: str) -> None:
        entity = ("--entity-type", "clients", "--entity-name", client_id)
        java.tool(tools.CONFIGS, "--bootstrap-server", broker.bootstrap, "--alter", *entity, *change).ok()

    def set_quota(**quotas: object) -> str:
        client_id = f"client-{unique_name()}"
        values = ",".join(f"{name}={value}" for name, value in quotas.items())
        alter(client_id, "--add-config", values)
        given.append((client_id, quotas))
        return client_id

    yield set_quota
    for client_id, quotas in given:
        alter(client_id, "--delete-config", ",".join(quotas))


class Watch:
    """Measures a block."""

    def __enter__(self) -> "Watch":
        self._started = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.sec = time.monotonic() - self._started

    def took_as_long_as_allowed(self) -> None:
        """Not faster than the quota but for the last request's wait, and not much slower on a busy machine."""
        assert 0.85 * EXPECTED_SEC <= self.sec <= 3 * EXPECTED_SEC, (self.sec, EXPECTED_SEC)


def fill(broker: Peer, topic: str) -> None:
    client = librdkafka.producer(broker, linger_ms=5)
    for value in VALUES:
        client.produce(topic, value, partition=0)
    assert client.flush(PATIENCE_SEC) == 0


def test_java_producer_gets_its_rate(java: ToolServer, broker: Peer, topic: str, limited: SetQuota) -> None:
    client_id = limited(producer_byte_rate=RATE)
    arguments = (
        "--topic", topic, "--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES), "--throughput", "-1",
        "--print-metrics", "--producer-props", f"bootstrap.servers={broker.bootstrap}",
        f"client.id={client_id}", "batch.size=20000", "delivery.timeout.ms=120000",
    )  # fmt: skip
    with Watch() as watch:
        printed = java.tool(tools.PRODUCER_PERF_TEST, *arguments).ok()
    assert f"{RECORDS} records sent" in printed
    watch.took_as_long_as_allowed()
    (throttled,) = (line for line in printed.splitlines() if "produce-throttle-time-max" in line)
    assert float(throttled.rsplit(":", 1)[1]) > 0


def test_librdkafka_producer_gets_its_rate(broker: Peer, topic: str, limited: SetQuota) -> None:
    events: list[Any] = []
    client = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": limited(producer_byte_rate=RATE),
            "linger.ms": 5,
            "batch.size": 20_000,
            "throttle_cb": events.append,
        }
    )
    with Watch() as watch:
        for value in VALUES:
            client.produce(topic, value, partition=0)
        assert client.flush(PATIENCE_SEC) == 0
    watch.took_as_long_as_allowed()
    assert any(event.throttle_time > 0 for event in events)


@pytest.mark.nightly  # a throttled producer of kafka-python keeps a core busy
def test_kafka_python_producer_gets_its_rate(broker: Peer, topic: str, limited: SetQuota) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        client_id=limited(producer_byte_rate=RATE),
        batch_size=20_000,
        request_timeout_ms=60_000,
        delivery_timeout_ms=120_000,
    )
    try:
        with Watch() as watch:
            sent = [producer.send(topic, value, partition=0) for value in VALUES]
            producer.flush(PATIENCE_SEC)
        assert all(future.succeeded() for future in sent)
    finally:
        producer.close()
    watch.took_as_long_as_allowed()


def test_librdkafka_consumer_gets_its_rate(broker: Peer, topic: str, limited: SetQuota) -> None:
    fill(broker, topic)
    client_id = limited(consumer_byte_rate=RATE)
    with (
        librdkafka.assigned_consumer(
            broker, topic, client_id=client_id, max_partition_fetch_bytes=100_000
        ) as consumer,
        Watch() as watch,
    ):
        assert len(librdkafka.take(consumer, RECORDS)) == RECORDS
    watch.took_as_long_as_allowed()


def test_kafka_python_consumer_gets_its_rate(broker: Peer, topic: str, limited: SetQuota) -> None:
    fill(broker, topic)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        client_id=limited(consumer_byte_rate=RATE),
        group_id=None,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=100_000,
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        taken, deadline = 0, time.monotonic() + PATIENCE_SEC
        with Watch() as watch:
            while taken < RECORDS and time.monotonic() < deadline:
                taken += sum(map(len, consumer.poll(200).values()))
        assert taken == RECORDS
    finally:
        consumer.close()
    watch.took_as_long_as_allowed()


def test_throttled_client_does_not_slow_another(broker: Peer, topic: str, limited: SetQuota) -> None:
    slow = librdkafka.producer(
        broker, client_id=limited(producer_byte_rate=RATE), linger_ms=5, batch_size=20_000
    )
    for value in VALUES:
        slow.produce(topic, value, partition=0)
    slow.poll(1)
    free = librdkafka.producer(broker, linger_ms=0)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    slowest = 0.0
    for _ in range(20):
        with Watch() as watch:
            free.produce(topic, b"free", partition=0)
            assert free.flush(PATIENCE_SEC) == 0
            assert topic in admin.list_topics(timeout=PATIENCE_SEC).topics
        slowest = max(slowest, watch.sec)
    assert len(slow) > 0, "the throttled producer is done already"
    assert slowest < 2
    assert slow.flush(PATIENCE_SEC) == 0


def test_mutations_above_the_quota_are_refused(
    java: ToolServer, broker: Peer, limited: SetQuota, tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(f"client.id={limited(controller_mutation_rate=1)}\n")

    def create(partitions: int) -> ToolResult:
        arguments = ("--create", "--topic", unique_name(), "--partitions", str(partitions))
        of_client = ("--bootstrap-server", broker.bootstrap, "--command-config", str(properties))
        return java.tool(tools.TOPICS, *of_client, *arguments)

    assert "Created topic" in create(30).ok()
    refused = create(1)
    assert refused.exit_code == 1
    assert "The throttling quota has been exceeded." in refused.out + refused.err


def test_mutations_of_an_old_client_are_delayed(broker: Peer, limited: SetQuota) -> None:
    """librdkafka does not know the error: its topics are created, and its next request waits."""
    admin = AdminClient(
        {"bootstrap.servers": broker.bootstrap, "client.id": limited(controller_mutation_rate=2)}
    )
    (created,) = admin.create_topics([confluent_kafka.admin.NewTopic(unique_name(), 30)]).values()  # type: ignore[attr-defined]
    created.result(PATIENCE_SEC)
    # 30 partitions, 22 of them at once, 2 a second.
    with Watch() as watch:
        (again,) = admin.create_topics([confluent_kafka.admin.NewTopic(unique_name(), 1)]).values()  # type: ignore[attr-defined]
        again.result(PATIENCE_SEC)
    assert watch.sec > 2
