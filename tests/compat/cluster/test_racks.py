"""Reading in one's own rack (KIP-392): where consumers read, and where they go on when that broker is away.

Brokers 1, 2 and 3 are in the racks a, b and c. What each broker sent is read from its metrics.
"""

import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka.protocol.consumer import FetchResponse

from tests.support import wire
from tests.support.client_consumers import RACK_CONSUMERS, ClientConsumer, client_consumer
from tests.support.flows import LibrdkafkaFlow
from tests.support.group_work import committed_offsets, partitions_of, send_to_all
from tests.support.java import JavaServer
from tests.support.java_groups import JavaGroups, groups_on
from tests.support.left_sockets import IGNORED_WHILE_THEY_RUN, left_sockets_are_collected
from tests.support.nightly import by_day
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until
from tests.support.zoned_cluster import ZonedCluster

PARTITIONS = 3  # one of each broker
RECORDS = 50
NEAR = 2  # the broker in rack b
QUICK = {"reconnect_backoff_max_ms": 200}
GOES_ON_S = PATIENCE_SEC

pytestmark = IGNORED_WHILE_THEY_RUN
__all__ = ["left_sockets_are_collected"]


@pytest.fixture
def java_groups(group_jvm: JavaServer, cluster: ZonedCluster) -> Iterator[JavaGroups]:
    with groups_on(group_jvm, cluster.bootstrap) as groups:
        yield groups


@pytest.mark.parametrize("client", RACK_CONSUMERS)
def test_a_consumer_reads_in_its_own_rack(
    cluster: ZonedCluster, java_groups: JavaGroups, tmp_path: Path, client: str
) -> None:
    topic = cluster.topic(PARTITIONS)
    send_to_all(cluster, topic, PARTITIONS, RECORDS)
    sent: dict[str, dict[int, int]] = {}
    before = dict.fromkeys(cluster.brokers, 0)
    for rack in ("b", "nowhere"):
        group = unique_name("group")
        with client_consumer(
            client, cluster, group, [topic], rack=rack, java=java_groups, folder=tmp_path
        ) as reader:
            wait_until(lambda: sum(map(len, reader.read().values())) >= PARTITIONS * RECORDS, "every record")
            for partition in range(PARTITIONS):
                assert reader.read()[topic, partition] == list(range(RECORDS))
        after = cluster.bytes_out(topic)
        sent[rack] = {broker_id: after[broker_id] - before[broker_id] for broker_id in after}
        before = after
    assert min(sent["nowhere"].values()) > 0, "no broker is in the rack: every leader sends its own"
    assert sent["b"] == {1: 0, NEAR: sum(sent["nowhere"].values()), 3: 0}


def test_consumers_go_on_from_the_leader_and_come_back(
    cluster: ZonedCluster, java_groups: JavaGroups, tmp_path: Path
) -> None:
    """Their broker is stopped, comes back, is killed, comes back; nothing is skipped, repeated or uncommitted."""
    topic = cluster.topic(PARTITIONS)
    clients = by_day(["librdkafka"], by_night=list(RACK_CONSUMERS))
    groups = {client: cluster.group_at(1) for client in clients}
    with LibrdkafkaFlow(cluster.bootstrap, topic, PARTITIONS) as producer, ExitStack() as stack:
        readers = {
            client: stack.enter_context(
                client_consumer(
                    client, cluster, group, [topic], rack="b", java=java_groups, folder=tmp_path, **QUICK
                )
            )
            for client, group in groups.items()
        }
        all_go_on(readers, topic, "at the start", 20.0)
        near_is_read(cluster, topic)
        # franz-go asks nobody else about what it read there, while the leader is the same (docs/cluster.md)
        others = {client: reader for client, reader in readers.items() if client != "franz-go"}
        waiting = stack.enter_context(waiting_fetch(cluster))
        cluster.cluster.stop(NEAR)
        all_go_on(others, topic, "after SIGTERM")
        assert preferred_replicas(waiting) <= {1, 3}, "it was told to go to those that stay"
        cluster.cluster.start(NEAR)
        near_is_read(cluster, topic)
        cluster.cluster.kill(NEAR)
        all_go_on(others, topic, "after kill -9")
        cluster.cluster.start(NEAR)
        all_go_on(readers, topic, "with their broker back")
        near_is_read(cluster, topic)
        producer.stop()
        producer.acknowledged()
        stored = {
            partition: [offset for offset, _ in cluster.cluster.read_all((topic, partition))]
            for partition in range(PARTITIONS)
        }
        for client, reader in readers.items():
            check_read(client, reader, topic, stored)
        for client, group in groups.items():
            wait_committed(cluster, client, group, topic, stored)


@contextlib.contextmanager
def waiting_fetch(cluster: ZonedCluster) -> Iterator[wire.Wire]:
    """A Fetch that waits at the broker of its rack for partitions without records, which others lead."""
    topic = cluster.topic(PARTITIONS)
    offsets = {index: 0 for index, leader in cluster.cluster.leaders(topic).items() if leader != NEAR}
    with wire.connect(cluster.brokers[NEAR]) as connection:
        wire.fetch(connection, topic, offsets, max_wait_ms=0)  # they are followed now
        request = wire.fetch_request(topic, offsets, max_wait_ms=60_000)
        request.rack_id = "b"
        connection.send(request, wire.FETCH_VERSION)
        yield connection


def preferred_replicas(connection: wire.Wire) -> set[int]:
    """The replicas that the reply names for its partitions."""
    _, reply = connection.receive(FetchResponse, wire.FETCH_VERSION)
    return {part.preferred_read_replica for topic in reply.responses for part in topic.partitions}


def check_read(client: str, reader: ClientConsumer, topic: str, stored: dict[int, list[int]]) -> None:
    """It has read what is stored, each record once and in order."""
    for partition, offsets in stored.items():
        wait_until(
            lambda: reader.read()[topic, partition][-1:] == offsets[-1:],  # noqa: B023
            f"{client} has read {topic}-{partition}",
        )
        assert reader.read()[topic, partition] == offsets, f"{client}, partition {partition}"


def wait_committed(
    cluster: ZonedCluster, client: str, group: str, topic: str, stored: dict[int, list[int]]
) -> None:
    """Wait until the group has committed the end of what is stored."""
    wanted = {(topic, partition): offsets[-1] + 1 for partition, offsets in stored.items()}
    wait_until(
        lambda: committed_offsets(cluster.brokers[1], group, partitions_of(topic, PARTITIONS)) == wanted,
        f"{client} has committed {wanted}",
    )


def all_go_on(
    readers: dict[str, ClientConsumer], topic: str, when: str, timeout_s: float = GOES_ON_S
) -> None:
    """Every reader reads more of every partition; prints how long that took."""
    began = time.monotonic()
    before = {client: lengths(reader, topic) for client, reader in readers.items()}
    for client, reader in readers.items():
        wait_until(
            lambda: all(
                now >= then + 3
                for now, then in zip(lengths(reader, topic), before[client], strict=True)  # noqa: B023
            ),
            f"{client} goes on {when}",
            timeout_s,
        )
        print(f"{client} goes on {when}: {time.monotonic() - began:.2f} s")


def lengths(reader: ClientConsumer, topic: str) -> list[int]:
    read = reader.read()
    return [len(read.get((topic, partition), ())) for partition in range(PARTITIONS)]


def near_is_read(cluster: ZonedCluster, topic: str) -> None:
    """Once all readers are at the broker of their rack again, the others send nothing."""
    shares: dict[int, int] = {}

    def only_near() -> bool:
        before = cluster.bytes_out(topic)
        time.sleep(0.3)  # some rounds of the readers, a watched window and not a wait
        after = cluster.bytes_out(topic)
        shares.update({broker_id: after[broker_id] - before[broker_id] for broker_id in after})
        return shares[NEAR] > 0 and all(not sent for broker_id, sent in shares.items() if broker_id != NEAR)

    wait_until(only_near, "only the broker of their rack is read from")
