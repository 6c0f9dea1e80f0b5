"""Sessions that end (KIP-368): clients authenticate themselves again, or come back, and lose nothing."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer

from tests.compat.security.clients import aiokafka_client, kafka_python, librdkafka
from tests.compat.security.conftest import MAX_REAUTH_MS, OPEN
from tests.support.client_security import java_config
from tests.support.java import JavaRecord, ToolServer
from tests.support.oauth_server import OauthServer
from tests.support.secure_peer import SecurePeer, access
from tests.support.security_plan import OAUTH, SASL_SSL, SCRAM_512, Access
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC

COUNT = 20
PAUSE_SEC = 2 * MAX_REAUTH_MS / 1_000 / COUNT  # so that two sessions end meanwhile
# librdkafka authenticates again for a new token, when 80 % of its time are over, and when 90 % of a session are. As
# in Kafka a broker refuses the second one within a second. So a token says that it ends long before its session does.
TOKEN_SEC = 3.0
SESSION_SEC = 7


@pytest.fixture
def topic(lenient: SecurePeer) -> str:
    """A topic of one partition."""
    name = unique_name("session")
    librdkafka.Librdkafka().create(access(lenient, SASL_SSL, "alice", SCRAM_512), name)
    return name


def send_with_librdkafka(way_in: Access, topic: str, pause_sec: float = PAUSE_SEC, **more: Any) -> list[str]:
    """The names of all errors, of records and of connections."""
    errors: list[str] = []

    def report(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            errors.append(error.name())

    settings = {**librdkafka.config(way_in), "error_cb": lambda error: errors.append(error.name()), **more}
    producer = Producer(settings)
    for number in range(COUNT):
        producer.produce(topic, str(number), on_delivery=report)
        end = time.monotonic() + pause_sec
        while (rest := end - time.monotonic()) > 0:
            producer.poll(rest)
    assert producer.flush(PATIENCE_SEC) == 0
    return errors


def send_with_kafka_python(way_in: Access, topic: str) -> list[str]:
    """Nothing: it raises."""
    with contextlib.closing(KafkaProducer(**kafka_python.config(way_in))) as producer:
        for number in range(COUNT):
            producer.send(topic, str(number).encode()).get(PATIENCE_SEC)
            time.sleep(PAUSE_SEC)
    return []


def send_with_aiokafka(way_in: Access, topic: str) -> list[str]:
    """Nothing: it raises. It does not authenticate itself again, but connects again."""

    async def run() -> None:
        producer = AIOKafkaProducer(**aiokafka_client.config(way_in))
        await producer.start()
        try:
            for number in range(COUNT):
                await producer.send_and_wait(topic, str(number).encode())
                await asyncio.sleep(PAUSE_SEC)
        finally:
            await producer.stop()

    aiokafka_client.run_to_the_end(run())
    return []


@pytest.mark.parametrize("send", [send_with_librdkafka, send_with_kafka_python, send_with_aiokafka])
def test_producer_outlives_its_sessions(
    lenient: SecurePeer, topic: str, send: Callable[[Access, str], list[str]]
) -> None:
    way_in = access(lenient, SASL_SSL, "alice", SCRAM_512)
    assert send(way_in, topic) == []
    values = librdkafka.Librdkafka().consume(way_in, topic, unique_name("group"), COUNT)
    assert values == [str(number) for number in range(COUNT)]


def test_java_producer_outlives_its_sessions(
    lenient: SecurePeer, secure_java: ToolServer, topic: str
) -> None:
    config = java_config(access(lenient, SASL_SSL, "alice", SCRAM_512))
    records = [JavaRecord(value=b"%d" % number, partition=0) for number in range(COUNT)]
    results = secure_java.produce(topic, records, config, pause_ms=int(PAUSE_SEC * 1_000))
    assert [result.get("offset") for result in results] == list(range(COUNT)), results


def test_producer_outlives_its_token(secured: SecurePeer, oauth: OauthServer) -> None:
    """A session lasts as long as its token: librdkafka gets another before."""
    tokens: list[str] = []

    def next_token(_: Any) -> tuple[str, float]:
        now = time.time()
        tokens.append(oauth.token("alice", exp=int(now) + SESSION_SEC))
        return tokens[-1], now + TOKEN_SEC

    way_in, topic = access(secured, SASL_SSL, "alice", OAUTH), unique_name(OPEN + "topic")
    librdkafka.Librdkafka().create(way_in, topic)
    pause_sec = (SESSION_SEC + 1) / COUNT
    assert send_with_librdkafka(way_in, topic, pause_sec, oauth_cb=next_token) == []
    assert len(tokens) > 1
