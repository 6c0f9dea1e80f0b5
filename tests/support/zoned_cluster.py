"""Three brokers in three racks on an etcd and an S3 server of their own, and queries for such a cluster."""

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.cluster import AWAY, Cluster, ClusterStores, running_cluster
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import etcd_server
from tests.support.group_apis import find_coordinator
from tests.support.metrics_page import scrape
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import s3_server
from tests.support.topics import METADATA_VERSION, describe_topic, unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

RACKS: Mapping[int, str] = {1: "a", 2: "b", 3: "c"}
LEASE_TTL_S = 2
SETTINGS: Mapping[str, Any] = {
    "shutdown_linger_ms": 2000,  # nearly the default: real clients' heartbeats and retries fall into it
    "lease_ttl_sec": LEASE_TTL_S,
    "flush_interval_ms": 5,
    "group_initial_rebalance_delay_ms": 50,
    "group_min_session_timeout_ms": 500,
    "auto_create_topics": "false",
}
SETTLED_TIMEOUT_S = PATIENCE_SEC


def cluster_missing() -> str | None:
    """The reason why there can be no such cluster here, or None."""
    return etcd_missing() or s3_server_missing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """A partition's leader and leader epoch, from a broker's metadata."""

    leader: int
    epoch: int


class ZonedCluster:
    """Brokers 1, 2 and 3 in racks a, b and c, with shortcuts for clients' requests."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.brokers = cluster.brokers

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def topic(self, partitions: int = 6, configs: Mapping[str, object] | None = None) -> str:
        """A new topic; it has its leaders, evenly spread."""
        name = unique_name()
        self.cluster.create_topic(name, partitions, configs)
        self.wait_spread(name)
        return name

    def metadata(self, broker_id: int) -> Any:
        """A broker's metadata of the cluster, without topics."""
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        with wire.connect(self.brokers[broker_id]) as connection:
            return connection.call(request, MetadataResponse, METADATA_VERSION)

    def led(self, topic: str, broker_id: int) -> dict[int, Led]:
        """Partition -> leader and epoch, by this broker."""
        with wire.connect(self.brokers[broker_id]) as connection:
            described = describe_topic(connection, topic)
        return {
            one.partition_index: Led(leader=one.leader_id, epoch=one.leader_epoch)
            for one in described.partitions
        }

    def leader(self, topic: str, partition: int = 0) -> KafscaleBroker:
        """The broker that leads the partition."""
        return self.brokers[self.cluster.leaders(topic)[partition]]

    def others(self, topic: str, partition: int = 0) -> list[KafscaleBroker]:
        """The live brokers that do not lead the partition."""
        leader = self.cluster.leaders(topic)[partition]
        return [self.brokers[broker_id] for broker_id in self.cluster.live if broker_id != leader]

    def led_by(self, topic: str, broker_id: int) -> int:
        """A partition that the broker leads."""
        return next(index for index, leader in self.cluster.leaders(topic).items() if leader == broker_id)

    def shares(self, topic: str) -> Counter[int]:
        """The number of the topic's partitions that each live broker leads."""
        shares = Counter(dict.fromkeys(self.cluster.live, 0))
        shares.update(self.cluster.leaders(topic).values())
        return shares

    def wait_spread(self, *topics: str, timeout_s: float = SETTLED_TIMEOUT_S) -> float:
        """Wait until live brokers lead the topics' partitions in even shares; returns the seconds."""
        began = time.monotonic()
        for topic in topics:
            wait_until(functools.partial(self._is_spread, topic), f"{topic} is spread evenly", timeout_s)
            self.cluster.wait_until_led(topic)
        return time.monotonic() - began

    def _is_spread(self, topic: str) -> bool:
        self.cluster.check_alive()
        try:
            shares = self.shares(topic)
        except AWAY:
            return False
        return set(shares) == set(self.cluster.live) and max(shares.values()) - min(shares.values()) <= 1

    # --- groups

    def coordinator(self, group: str, asked: int | None = None) -> int:
        """The id of the broker that coordinates the group, -1 if a broker knows none."""
        broker = self.cluster.any_live() if asked is None else self.brokers[asked]
        with wire.connect(broker) as connection:
            found = find_coordinator(connection, [group])[group]
        return int(found.node_id) if found.error_code == 0 else -1

    def group_at(self, broker_id: int) -> str:
        """The name of a new group that this broker coordinates."""
        while True:
            group = unique_name("group")
            coordinator = wait_until(lambda group=group: max(self.coordinator(group), 0), "a coordinator")  # type: ignore[misc]
            if coordinator == broker_id:
                return group

    # --- counters

    def bytes_out(self, topic: str) -> dict[int, int]:
        """Bytes of the topic that each live broker has sent to consumers."""
        return {
            broker_id: int(
                scrape(self.brokers[broker_id])
                .by_label("kafscale_topic_bytes_out_total", "topic")
                .get((topic,), 0)
            )
            for broker_id in self.cluster.live
        }


@contextlib.contextmanager
def zoned_cluster(folder: Path, **settings: object) -> Iterator[ZonedCluster]:
    """A ready cluster; at its end the brokers must stop cleanly."""
    with s3_server(folder / "s3") as s3, etcd_server(folder / "etcd") as etcd:
        stores = ClusterStores.of((etcd.endpoint,), s3)
        racks = {broker_id: {"rack": rack} for broker_id, rack in RACKS.items()}
        with running_cluster(folder, stores, of_broker=racks, **{**SETTINGS, **settings}) as cluster:
            yield ZonedCluster(cluster)
