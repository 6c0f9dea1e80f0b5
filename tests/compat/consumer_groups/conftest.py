"""A broker whose consumer groups have short heartbeats. KAFSCALE_TEST_PEER=kafka: Apache Kafka."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.compat.conftest import GROUP_SETTINGS, Peer, _skip_without_java
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import KafscaleBroker
from tests.support.consumer_group_members import RawConsumerGroup, raw_consumer_group

HEARTBEAT_INTERVAL_MS = 200
# Members learn of a change within moments, and a test may give its group a session of moments.
CONSUMER_GROUP_SETTINGS: Mapping[str, Any] = {
    **GROUP_SETTINGS,
    "group_consumer_heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_min_session_timeout_ms": 500,
}


def consumer_group_peer(kind: str, folders: pytest.TempPathFactory, **settings: Any) -> Peer:
    """A broker that is not started yet; `settings` have the same names in both."""
    folder = folders.mktemp("consumer-groups")
    settings = {**CONSUMER_GROUP_SETTINGS, **settings}
    if kind == "kafka":
        _skip_without_java()
        return ApacheKafka(
            folder, auto_create_topics_enable="false", offsets_topic_num_partitions=1, **settings
        )
    return KafscaleBroker(folder, flush_interval_ms=5, auto_create_topics="false", **settings)


def running(peer: Peer) -> Iterator[Peer]:
    """Start it, and stop it at the end."""
    try:
        peer.start()
        yield peer
        if peer.exit_code is None:
            peer.stop()
    finally:
        peer.close()


@pytest.fixture(scope="package")
def peer(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker for all tests of consumer groups. It creates no topic by itself."""
    yield from running(consumer_group_peer(peer_kind, tmp_path_factory))


@pytest.fixture
def group(peer: Peer) -> Iterator[RawConsumerGroup]:
    """A group without members."""
    with raw_consumer_group(peer) as made:
        yield made
