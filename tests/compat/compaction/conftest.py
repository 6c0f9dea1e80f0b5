"""A broker that compacts within seconds. KAFSCALE_TEST_PEER=kafka: Apache Kafka, with the same topic configs."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import Peer, _skip_without_java
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import KafscaleBroker
from tests.support.compacted_topics import SOON_ON_KAFKA, SOON_ON_KAFSCALE


def compacting_peer(kind: str, folders: pytest.TempPathFactory) -> Peer:
    """A broker that is not started yet."""
    folder = folders.mktemp("compacting")
    if kind == "kafka":
        _skip_without_java()
        return ApacheKafka(folder, offsets_topic_num_partitions=1, **SOON_ON_KAFKA)
    return KafscaleBroker(folder, **SOON_ON_KAFSCALE)


@pytest.fixture(scope="package")
def compacting(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker for all tests of compacted topics."""
    peer = compacting_peer(peer_kind, tmp_path_factory)
    try:
        peer.start()
        yield peer
        if peer.exit_code is None:
            peer.stop()
    finally:
        peer.close()
