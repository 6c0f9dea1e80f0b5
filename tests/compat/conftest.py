"""The brokers and tools of the compatibility tests. KAFSCALE_TEST_PEER=kafka runs them on Apache Kafka."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kafscale.protocol import api_messages as m
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from tests.compat import tools
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import KafscaleBroker
from tests.support.java import JavaServer, ToolServer, tool_server
from tests.support.java_groups import JavaGroups, group_server, groups_on
from tests.support.reporting import pytest_runtest_makereport
from tests.support.topics import create_topic, unique_name
from tests.support.wire import connect

__all__ = ["pytest_runtest_makereport"]

Peer = KafscaleBroker | ApacheKafka
NewTopic = Callable[..., str]

AUTO_CREATE_PARTITIONS = 3
# Groups form, and lose their members, in moments rather than in seconds.
GROUP_SETTINGS: Mapping[str, Any] = {
    "group_initial_rebalance_delay_ms": 50,
    "group_min_session_timeout_ms": 500,
}


@pytest.fixture(scope="session")
def peer_kind() -> str:
    """`kafscale`, or `kafka` when the tests are to be checked against Apache Kafka."""
    kind = os.environ.get("KAFSCALE_TEST_PEER", "kafscale")
    assert kind in ("kafscale", "kafka"), f"KAFSCALE_TEST_PEER={kind!r}: kafscale or kafka"
    return kind


@pytest.fixture(scope="package")
def broker(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker that creates topics of three partitions when a client names them."""
    yield from _peer(peer_kind, tmp_path_factory, auto_create=True)


@pytest.fixture(autouse=True)
def left_as_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails the test that leaves quotas on the broker it shares: other tests list all of them."""
    yield
    if "broker" in request.fixturenames:
        with connect(request.getfixturevalue("broker")) as wire:
            every = m.DescribeClientQuotasRequest(components=[], strict=False)
            found = wire.call(every, RESPONSE_CLASSES[ApiKey.DESCRIBE_CLIENT_QUOTAS], 1)
        assert found.entries == [], "the test has left quotas behind"


@pytest.fixture(scope="package")
def strict_broker(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker that creates no topic by itself."""
    yield from _peer(peer_kind, tmp_path_factory, auto_create=False)


@pytest.fixture
def new_topic(broker: Peer) -> NewTopic:
    """Creates a topic on `broker`: partitions and configs as arguments; gives its name."""

    def create(partitions: int = 1, configs: Mapping[str, object] | None = None) -> str:
        name = unique_name()
        create_topic(broker, name, partitions, configs)
        return name

    return create


@pytest.fixture(scope="package")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    """Kafka's Java tools and clients in one JVM."""
    _skip_without_java()
    with tool_server(tmp_path_factory.mktemp("java")) as server:
        yield server


@pytest.fixture(scope="package")
def group_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaServer]:
    """A JVM for members of groups."""
    _skip_without_java()
    with group_server(tmp_path_factory.mktemp("java-groups")) as server:
        yield server


@pytest.fixture
def java_groups(group_jvm: JavaServer, broker: Peer) -> Iterator[JavaGroups]:
    """Java consumers in groups on `broker`, and its Java AdminClient."""
    with groups_on(group_jvm, broker.bootstrap) as groups:
        yield groups


@pytest.fixture
def java_processes() -> None:
    """For tests that start Java tools as processes of their own."""
    _skip_without_java()


@pytest.fixture
def kcat() -> None:
    """For tests that run kcat."""
    reason = tools.kcat_missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def only_kafscale(peer_kind: str) -> None:
    """For behaviour in which a stateless broker differs on purpose (docs/compatibility.md)."""
    if peer_kind == "kafka":
        pytest.skip("Kafscale differs from Kafka here on purpose")


def _skip_without_java() -> None:
    reason = tools.java_missing()
    if reason:
        pytest.skip(reason)


def _peer(kind: str, folders: pytest.TempPathFactory, *, auto_create: bool) -> Iterator[Peer]:
    folder = folders.mktemp("broker")
    peer: Peer
    if kind == "kafka":
        _skip_without_java()
        peer = ApacheKafka(
            folder,
            auto_create_topics_enable=str(auto_create).lower(),
            num_partitions=AUTO_CREATE_PARTITIONS,
            offsets_topic_num_partitions=1,
            **GROUP_SETTINGS,
        )
    else:
        peer = KafscaleBroker(
            folder,
            auto_create_topics=str(auto_create).lower(),
            auto_create_partitions=AUTO_CREATE_PARTITIONS,
            flush_interval_ms=5,
            **GROUP_SETTINGS,
        )
    try:
        peer.start()
        yield peer
        peer.stop()
    finally:
        peer.close()
