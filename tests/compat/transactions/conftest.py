"""A broker that ends transactions of their timeout soon. KAFSCALE_TEST_PEER=kafka: Apache Kafka."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.compat import tools
from tests.compat.conftest import GROUP_SETTINGS, Peer, _skip_without_java
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import KafscaleBroker
from tests.support.topics import create_topic, unique_name
from tests.support.transactions.client import TransactionalClient
from tests.support.transactions.clients import Aiokafka, KafkaPython, Librdkafka
from tests.support.transactions.programs import ProgramClient, franz_client, java_client, kafka_js_client

TIMED_OUT_SOON: Mapping[str, Any] = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 100}


def transactional_peer(kind: str, folders: pytest.TempPathFactory) -> Peer:
    """A broker that is not started yet."""
    folder = folders.mktemp("transactional")
    if kind == "kafka":
        _skip_without_java()
        return ApacheKafka(
            folder,
            offsets_topic_num_partitions=1,
            transaction_state_log_num_partitions=1,
            **TIMED_OUT_SOON,
            **GROUP_SETTINGS,
        )
    return KafscaleBroker(folder, flush_interval_ms=5, **TIMED_OUT_SOON, **GROUP_SETTINGS)


@pytest.fixture(scope="package")
def peer(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker for all tests of transactions, with the newest protocol."""
    peer = transactional_peer(peer_kind, tmp_path_factory)
    try:
        peer.start()
        yield peer
        if peer.exit_code is None:
            peer.stop()
    finally:
        peer.close()


@pytest.fixture
def topic(peer: Peer) -> str:
    """A topic of two partitions."""
    name = unique_name("transactional")
    create_topic(peer, name, 2)
    return name


@pytest.fixture(scope="package")
def java_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramClient]:
    """Kafka's Java clients."""
    _skip_without_java()
    with java_client(tmp_path_factory.mktemp("java-transactions")) as client:
        yield client


@pytest.fixture(scope="package")
def franz_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramClient]:
    """franz-go."""
    reason = tools.franz_missing()
    if reason:
        pytest.skip(reason)
    with franz_client(tmp_path_factory.mktemp("franz-transactions")) as client:
        yield client


@pytest.fixture(scope="package")
def kafka_js_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramClient]:
    """KafkaJS."""
    reason = tools.kafka_js_missing()
    if reason:
        pytest.skip(reason)
    with kafka_js_client(tmp_path_factory.mktemp("kafkajs-transactions")) as client:
        yield client


_IN_PROCESS: dict[str, TransactionalClient] = {
    one.name: one for one in (Librdkafka(), KafkaPython(), Aiokafka())
}
_PROGRAMS = {"java": "java_program", "franz-go": "franz_program", "kafkajs": "kafka_js_program"}


@pytest.fixture
def client(request: pytest.FixtureRequest) -> TransactionalClient:
    """The client that a test's parameter names."""
    if request.param in _IN_PROCESS:
        return _IN_PROCESS[request.param]
    found: TransactionalClient = request.getfixturevalue(_PROGRAMS[request.param])
    return found
