"""A cluster loses its etcd, and comes back from its bucket and an older snapshot while its clients go on.

What was written after the snapshot must be there, what was committed before it must be where it was.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from tests.integration.test_recover import REFUSED_TO_START, recover, recovered
from tests.support import librdkafka, wire
from tests.support.broker import KafscaleBroker
from tests.support.cluster import Cluster, ClusterStores, running_cluster
from tests.support.cluster_load import ClusterLoad, DirectLoad
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.history import History
from tests.support.history_checker import examine
from tests.support.ledger import Place
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import s3_server
from tests.support.topics import delete_topic, describe_topic
from tests.support.waiting import PATIENCE_SEC, wait_until

MISSING = etcd_missing() or s3_server_missing()
PLACES: list[Place] = [("t", index) for index in range(3)]
REFUSED = 3
GROUP = "readers"
BACKUPS = "backups"

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


class Lab(NamedTuple):
    """A cluster and the etcd that it is going to lose."""

    cluster: Cluster
    etcd: EtcdServer


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with s3_server(tmp_path / "s3") as s3, etcd_server(tmp_path / "etcd") as etcd:
        stores = ClusterStores.of((etcd.endpoint,), s3)
        (s3.bucket_folder.parent / BACKUPS).mkdir()  # a folder of the root is a bucket
        settings = {
            "flush_interval_ms": 10,
            "lease_ttl_sec": 2,
            "backup_bucket": BACKUPS,
            "backup_prefix": "nightly/kafscale",
        }
        with running_cluster(tmp_path, stores, brokers=2, **settings) as running:
            yield Lab(running, etcd)


def backup(broker: KafscaleBroker, *arguments: str) -> Any:
    """The output of `kafscale backup`, with the broker's settings."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "kafscale"), "backup", *arguments, "--json"],
        env=broker.environment(),
        cwd=broker.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def consumer(cluster: Cluster) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "session.timeout.ms": 6_000,
        }
    )


def read_some(cluster: Cluster, count: int) -> dict[int, int]:
    """Read as a member of the group and commit; the first offset of each partition that came."""
    first: dict[int, int] = {}
    seen = 0
    reader = consumer(cluster)
    try:
        reader.subscribe(["t"])

        def enough() -> bool:
            nonlocal seen
            for message in reader.consume(50, timeout=0.2):
                assert message.error() is None, str(message.error())
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                first.setdefault(partition, offset)
                seen += 1
            return seen >= count and len(first) == len(PLACES)

        wait_until(enough, f"{count} records of all partitions")
        reader.commit(asynchronous=False)
    finally:
        reader.close()
    return first


def committed(cluster: Cluster) -> dict[int, int]:
    """The group's committed offsets."""
    reader = consumer(cluster)
    try:
        found = reader.committed([TopicPartition(*place) for place in PLACES], timeout=PATIENCE_SEC)
        return {one.partition: one.offset for one in found}
    finally:
        reader.close()


def begin_group(cluster: Cluster) -> None:
    """Commit the beginning of every partition: nothing resets this group's offsets."""
    reader = consumer(cluster)
    try:
        reader.commit(offsets=[TopicPartition(*place, 0) for place in PLACES], asynchronous=False)
    finally:
        reader.close()


def topic_id(cluster: Cluster, name: str) -> Any:
    with wire.connect(cluster.any_live()) as connection:
        return describe_topic(connection, name).topic_id


def configs(cluster: Cluster, name: str) -> dict[str, str]:
    """The topic's configs that are set on it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, name)
    found = admin.describe_configs([resource], request_timeout=PATIENCE_SEC)[resource].result()
    return {entry.name: entry.value for entry in found.values() if entry.source == 1}


def lose_everything(lab: Lab) -> None:
    """The brokers die, and etcd comes back empty."""
    for broker_id in lab.cluster.running:
        lab.cluster.kill(broker_id)
    lab.etcd.stop()
    shutil.rmtree(lab.etcd.data_folder)
    lab.etcd.start()


@pytest.mark.nightly
def test_a_cluster_comes_back_from_its_bucket_and_a_snapshot(lab: Lab) -> None:
    cluster, broker = lab.cluster, lab.cluster.brokers[1]
    cluster.create_topic("t", len(PLACES), {"retention.ms": "86400000"})
    cluster.create_topic("quiet", 5, {"max.message.bytes": "4711"})
    cluster.create_topic("gone", 1)
    delete_topic(broker, "gone")
    ids = {name: topic_id(cluster, name) for name in ("t", "quiet")}
    history = History()
    through_it_all = ClusterLoad("idempotent", cluster, PLACES, history)
    until_the_loss = DirectLoad("direct", cluster, PLACES, history)
    loads = [through_it_all, until_the_loss]
    for load in loads:
        load.start()
    try:
        begin_group(cluster)
        read_some(cluster, 60)
        then = committed(cluster)
        taken = backup(broker, "create")
        assert backup(broker, "list")[0]["key"] == taken["key"]
        [sound] = backup(broker, "verify", "newest")
        assert (sound["problem"], sound["topics"], sound["groups"]) == (None, 2, 1)

        cluster.kill(2)  # leaders change, so that there are epochs that the snapshot does not know
        cluster.start(2)
        cluster.create_topic("later", 1)
        before = history.count()
        wait_until(lambda: history.count() > before + 100, "acknowledgements after the snapshot")
        read_some(cluster, 30)
        assert committed(cluster) != then

        until_the_loss.stop()
        until_the_loss.join(PATIENCE_SEC)
        lose_everything(lab)
        broker.launch_only()
        assert broker.wait_exit(40) == REFUSED_TO_START
        assert "kafscale recover" in broker.log_tail()
        done = recovered(broker, "--backup", "newest")
        assert done["snapshot"]["key"] == taken["key"]
        assert done["snapshot"]["committed_offsets"] == len(PLACES)
        assert recovered(broker, "--backup", taken["key"])["rebuilt"]["already_there"] == ["quiet", "t"]
        cluster.start()
        for name in ids:
            cluster.wait_until_led(name)
        refused = recover(broker, "--apply", "--backup", "newest")
        assert refused.returncode == REFUSED
        assert "stop them first" in refused.stderr

        assert {name: topic_id(cluster, name) for name in ids} == ids
        assert configs(cluster, "t") == {"retention.ms": "86400000"}
        assert configs(cluster, "quiet") == {"max.message.bytes": "4711"}
        assert committed(cluster) == then
        assert read_some(cluster, 60) == then  # on from there: nothing passed over
        before = history.count()
        wait_until(lambda: history.count() > before + 50, "acknowledgements after the rebuild")
    finally:
        for load in loads:
            load.stop()
        for load in loads:
            load.join(PATIENCE_SEC)
    history.check_producers()
    examine(history.evidence({place: cluster.read_all(place) for place in PLACES})).check()
    cluster.create_topic("gone", 1)
    cluster.stop_all()


def test_orphaned_brokers_stop_and_do_not_interfere(lab: Lab) -> None:
    """Their etcd comes back empty beneath them, under the same name and with the same id."""
    cluster = lab.cluster
    cluster.create_topic("t", len(PLACES))
    client = librdkafka.producer(cluster)
    assert all(isinstance(one, Message) for one in librdkafka.send_all(client, "t", [b"1", b"2", b"3"]))
    taken = backup(cluster.brokers[1], "create")
    lab.etcd.stop()
    shutil.rmtree(lab.etcd.data_folder)
    lab.etcd.start()
    for broker in cluster.brokers.values():
        assert broker.wait_exit(60) == REFUSED_TO_START
        assert "the metadata store was emptied or rebuilt" in broker.log_text()
    done = recovered(cluster.brokers[1], "--backup", "newest")
    assert done["snapshot"]["key"] == taken["key"]
    cluster.start()
    cluster.wait_until_led("t")
    assert sum(len(cluster.read_all(place)) for place in PLACES) == 3
    cluster.stop_all()
