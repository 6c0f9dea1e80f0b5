"""Clients meet the faults that a test orders, and do what they do in production."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.broker_with_faults import BrokerWithFaults, broker_with_faults
from tests.support.waiting import PATIENCE_SEC, wait_until

A_DAY_SEC = 24 * 3600.0
SESSION_TIMEOUT_SEC = 10
POLL_MS = 10_000
"""kafka-python 3.0 does not finish a join that the end of a `poll` interrupts between its two requests."""
Send = Callable[[BrokerWithFaults, str, bool], int]
"""Sends one record to a topic, idempotently or not, and returns its offset."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerWithFaults]:
    """Faults are removed after each test."""
    with broker_with_faults() as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults_left(broker: BrokerWithFaults) -> Iterator[None]:
    yield
    broker.faults.clear()
    broker.store.clear()


@pytest.fixture
def moved_broker() -> Iterator[BrokerWithFaults]:
    """For tests that advance by days: records of clients, which have the real time, are old for it afterwards."""
    with broker_with_faults() as running:
        yield running


@pytest.fixture
def topic(broker: BrokerWithFaults, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return broker.create_topic(name)


def by_kafka_python(broker: BrokerWithFaults, topic: str, idempotent: bool) -> int:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=idempotent, retries=20
    )
    try:
        return int(producer.send(topic, b"value").get(PATIENCE_SEC).offset)
    finally:
        producer.close()


def by_librdkafka(broker: BrokerWithFaults, topic: str, idempotent: bool) -> int:
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": idempotent, "log_level": 2}
    )
    producer.produce(topic, b"value", on_delivery=delivered)
    assert producer.flush(PATIENCE_SEC) == 0
    return offsets[0]


def by_aiokafka(broker: BrokerWithFaults, topic: str, idempotent: bool) -> int:
    async def send() -> int:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=idempotent
        ) as producer:
            return int((await producer.send_and_wait(topic, b"value")).offset)

    return asyncio.run(send())


CLIENTS = [
    pytest.param(by_kafka_python, id="kafka-python"),
    pytest.param(by_librdkafka, id="librdkafka"),
    pytest.param(by_aiokafka, id="aiokafka"),
]


@pytest.mark.parametrize("send", CLIENTS)
def test_producer_goes_on_after_two_errors(broker: BrokerWithFaults, topic: str, send: Send) -> None:
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, topic=topic)
    assert send(broker, topic, True) == 0
    assert fault.hits == 2
    assert broker.stored(topic) == 1


@pytest.mark.parametrize("send", CLIENTS)
def test_idempotent_producer_without_its_answer_stores_once(
    broker: BrokerWithFaults, topic: str, send: Send
) -> None:
    fault = broker.faults.drop_connection("Produce", after=True)
    send(broker, topic, True)
    assert fault.hits == 1
    assert broker.stored(topic) == 1


def test_other_producer_without_its_answer_stores_twice(broker: BrokerWithFaults, topic: str) -> None:
    broker.faults.drop_connection("Produce", after=True)
    assert by_kafka_python(broker, topic, False) == 1
    assert broker.stored(topic) == 2


def test_error_that_no_retry_helps_reaches_the_caller(broker: BrokerWithFaults, topic: str) -> None:
    broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=topic)
    with pytest.raises(Exception, match=r"(?i)topic.?authorization.?failed"):
        by_kafka_python(broker, topic, False)
    assert broker.stored(topic) == 0


def test_commit_that_fails_is_made_again(broker: BrokerWithFaults, topic: str) -> None:
    by_librdkafka(broker, topic, True)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=topic, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(timeout_ms=POLL_MS), "the record has come")
        fault = broker.faults.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
        consumer.commit()
        assert fault.hits == 2
        assert consumer.committed(TopicPartition(topic, 0)) == 1
    finally:
        consumer.close()


def test_late_fetch_comes_when_the_clock_says_so(broker: BrokerWithFaults, topic: str) -> None:
    by_librdkafka(broker, topic, True)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    try:
        fault = broker.faults.delay("Fetch", 20)
        consumer.assign([TopicPartition(topic, 0)])
        wait_until(lambda: consumer.poll(timeout_ms=10) or fault.hits, "a fetch is held back")
        assert fault.hits == 1
        assert not consumer.poll(timeout_ms=100)
        broker.loop.advance(21)
        wait_until(lambda: consumer.poll(timeout_ms=100), "the record has come")
    finally:
        consumer.close()


def test_member_that_is_gone_expires_by_the_clock(broker: BrokerWithFaults, topic: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": topic,
        "session.timeout.ms": SESSION_TIMEOUT_SEC * 1000,
        "auto.offset.reset": "earliest",
        "log_level": 2,
    }
    # A static member does not leave when it is closed: only its session's end removes it.
    gone, next_one = Consumer({**settings, "group.instance.id": "gone"}), Consumer(settings)
    gone.subscribe([topic])
    wait_until(lambda: gone.poll(0.1) is not None or gone.assignment(), "the first has the partition")
    gone.close()
    try:
        by_librdkafka(broker, topic, True)
        next_one.subscribe([topic])
        wait_until(lambda: next_one.poll(0.1) is not None or member_count(broker, topic) == 2, "it joins")
        assert not next_one.assignment()
        # Its own session is kept by its request to join, which waits for the one that is gone.
        broker.loop.advance(SESSION_TIMEOUT_SEC + 1)
        found = wait_until(lambda: next_one.poll(0.1), "the second has the record")
        assert found is not None
        assert found.value() == b"value"
        assert member_count(broker, topic) == 1
    finally:
        next_one.close()


def test_live_member_joins_again_after_a_leap(moved_broker: BrokerWithFaults) -> None:
    broker = moved_broker
    topic = broker.create_topic("orders")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        session_timeout_ms=SESSION_TIMEOUT_SEC * 1000,
        heartbeat_interval_ms=100,
        auto_offset_reset="earliest",
    )
    by_librdkafka(broker, topic, True)
    try:
        wait_until(lambda: consumer.poll(timeout_ms=POLL_MS), "it has joined, and the record")
        broker.loop.advance(A_DAY_SEC)
        assert member_count(broker, topic) == 0
        by_librdkafka(broker, topic, True)
        wait_until(lambda: consumer.poll(timeout_ms=POLL_MS), "it has joined again, and the record")
        assert member_count(broker, topic) == 1
    finally:
        consumer.close()


def test_retention_removes_what_the_clock_makes_old(moved_broker: BrokerWithFaults) -> None:
    broker = moved_broker
    topic = broker.create_topic("orders")
    by_librdkafka(broker, topic, True)
    broker.loop.advance(8 * A_DAY_SEC)
    assert broker.bounds(topic) == (1, 1)
    assert by_librdkafka(broker, topic, True) == 1


def test_idle_connection_is_closed_by_the_clock(broker: BrokerWithFaults) -> None:
    accepted = broker.broker.metrics.connections.accepted
    with socket.create_connection(("127.0.0.1", broker.broker.port), PATIENCE_SEC) as idle:
        wait_until(lambda: broker.broker.metrics.connections.accepted > accepted, "it is accepted")
        broker.loop.advance(3600)
        assert idle.recv(1) == b""


def test_outage_acknowledges_nothing_and_all_after_it(broker: BrokerWithFaults, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", linger_ms=0)
    try:
        producer.partitions_for(topic)
        with broker.store.outage() as outage:
            sent = [producer.send(topic, str(number).encode()) for number in range(20)]
            outage.wait_for_hits(3, PATIENCE_SEC)
            assert not any(one.is_done for one in sent)
            assert broker.stored(topic) == 0
        offsets = [one.get(PATIENCE_SEC).offset for one in sent]
    finally:
        producer.close()
    assert offsets == list(range(20))
    assert broker.stored(topic) == 20


def test_lost_answer_of_the_store_is_read_back(broker: BrokerWithFaults, topic: str) -> None:
    lost = broker.store.lose_answers()
    assert by_librdkafka(broker, topic, True) == 0
    assert lost.hits == 1
    assert broker.stored(topic) == 1


def test_slow_store_delays_acknowledgements(broker: BrokerWithFaults, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", linger_ms=0)
    try:
        producer.partitions_for(topic)
        with broker.store.slow(5, "write") as slow:
            sent = producer.send(topic, b"value")
            slow.wait_for_hits(1, PATIENCE_SEC)
            assert not sent.is_done
            broker.loop.advance(6)
            assert sent.get(PATIENCE_SEC).offset == 0
    finally:
        producer.close()


def member_count(broker: BrokerWithFaults, group_id: str) -> int:
    """The members of a group, as its coordinator has them."""
    found = broker.broker.process.serving.groups.coordinator.describe(group_id)
    return 0 if found is None else len(found.members)
