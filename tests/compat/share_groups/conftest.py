"""A broker with share groups of short heartbeats. KAFSCALE_TEST_PEER=kafka: Apache Kafka 4.2 for these alone."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafscale.protocol.share_group_messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from tests.compat import tools
from tests.compat.conftest import Peer
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import KafscaleBroker
from tests.support.consumer_group_members import alter_group_config
from tests.support.group_wire import StrictWire, connect_strictly
from tests.support.share_clients import ShareClient
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

SHARE_GROUP_SETTINGS: Mapping[str, Any] = {
    "group_share_heartbeat_interval_ms": 200,
    "group_share_min_heartbeat_interval_ms": 100,
    "group_share_min_session_timeout_ms": 500,
}


class KafkaOfShareGroups(ApacheKafka):
    """The first Kafka whose share groups are finished."""

    libs = tools.KAFKA_SHARE_LIBS


@dataclass(slots=True)
class ShareGroupOfClients:
    """A group of its own for a test, whose records are read from the beginning."""

    broker: Peer
    wire: StrictWire
    name: str

    def set_config(self, name: str, value: object) -> None:
        """Set a config of the group (resource type GROUP)."""
        error = alter_group_config(self.wire, self.name, name, value)
        assert error == 0, f"{name}={value}: error {error}"

    def describe(self) -> Any:
        """ShareGroupDescribe of the group."""
        request = ShareGroupDescribeRequest(group_ids=[self.name], include_authorized_operations=False)
        (found,) = self.wire.call(request, ShareGroupDescribeResponse, 1).groups
        return found

    def assignments(self) -> list[dict[uuid.UUID, set[int]]]:
        """The partitions that each of its members has."""
        return [
            {one.topic_id: set(one.partitions) for one in member.assignment.topic_partitions}
            for member in self.describe().members
        ]

    def await_members(self, count: int) -> None:
        """Wait until it has that many members, all with partitions."""

        def joined() -> bool:
            found = self.assignments()
            return len(found) == count and all(found)

        wait_until(joined, f"{self.name} has {count} members with partitions")


def share_peer(kind: str, folders: pytest.TempPathFactory) -> Peer:
    """A broker that is not started yet."""
    folder = folders.mktemp("share-groups")
    if kind == "kafka":
        _skip_for(tools.kafka_share_missing())
        return KafkaOfShareGroups(
            folder,
            auto_create_topics_enable="false",
            offsets_topic_num_partitions=1,
            share_coordinator_state_topic_num_partitions=1,
            share_coordinator_state_topic_replication_factor=1,
            share_coordinator_state_topic_min_isr=1,
            **SHARE_GROUP_SETTINGS,
        )
    return KafscaleBroker(folder, flush_interval_ms=5, auto_create_topics="false", **SHARE_GROUP_SETTINGS)


def running(peer: Peer) -> Iterator[Peer]:
    """Start it, and stop it at the end."""
    try:
        peer.start()
        yield peer
        if peer.exit_code is None:
            peer.stop()
    finally:
        peer.close()


@contextlib.contextmanager
def share_group(peer: Peer, name: str | None = None) -> Iterator[ShareGroupOfClients]:
    """A group without members on that broker, new or of that name."""
    with connect_strictly(peer) as wire:
        group = ShareGroupOfClients(peer, wire, name or unique_name("share-group"))
        if name is None:
            group.set_config("share.auto.offset.reset", "earliest")
        yield group


@pytest.fixture(scope="package")
def peer(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker for all tests of share groups. It creates no topic by itself."""
    yield from running(share_peer(peer_kind, tmp_path_factory))


@pytest.fixture
def group(peer: Peer) -> Iterator[ShareGroupOfClients]:
    """A group without members."""
    with share_group(peer) as made:
        yield made


Join = Callable[..., ShareClient]


@pytest.fixture
def join(group: ShareGroupOfClients, tmp_path: Path) -> Iterator[Join]:
    """Starts a member with a client; those that still run leave at the end."""
    with ExitStack() as members:

        def start(client: str, topic: str, **options: Any) -> ShareClient:
            skip_without(client)
            return members.enter_context(
                ShareClient(tmp_path, client, group.broker, group.name, topic, **options)
            )

        yield start


@pytest.fixture
def topic(peer: Peer) -> str:
    """A topic with one partition."""
    return new_topic(peer)


def new_topic(peer: Peer, partitions: int = 1) -> str:
    """A new topic's name."""
    name = unique_name()
    create_topic(peer, name, partitions)
    return name


def skip_without(client: str) -> None:
    """Skip the test where the client is not installed."""
    missing = {"java": tools.kafka_share_missing, "franz": tools.franz_share_missing}
    _skip_for(missing[client]() if client in missing else None)


def _skip_for(reason: str | None) -> None:
    if reason:
        pytest.skip(reason)
