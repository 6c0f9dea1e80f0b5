"""Backups by the operator: a real API server, an etcd that is lost, a bucket, a broker that comes back."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from aetcd import rpc

from tests.integration.test_recover import recovered
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.kube_api import KubeApi, Manifest
from tests.support.operated_topics import CLUSTER, OperatedTopics
from tests.support.operator_process import OperatorProcess
from tests.support.s3_server import S3Server, s3_server
from tests.support.waiting import PATIENCE_SEC, NotInTimeError, wait_until

BACKUPS = "backups"
MINUTE_SECONDS = 60 + PATIENCE_SEC


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        backups = server.bucket_folder.parent / BACKUPS  # a folder of the root is a bucket
        backups.mkdir()
        yield server


class BackedUp:
    """One cluster with a broker, whose backups the operator takes."""

    def __init__(self, topics: OperatedTopics, etcd: EtcdServer, s3: S3Server) -> None:
        self.topics = topics
        self.api = topics.api
        self._etcd = etcd
        self._s3 = s3

    def set_backups(self, *, bucket: str = BACKUPS, **parts: Any) -> None:
        """Change `spec.backups`."""
        where = {"bucket": bucket, "endpoint": self._s3.endpoint, "credentialsSecret": "s3"}
        self.api.patch(CLUSTER, "c", {"spec": {"backups": {"s3": where, **parts}}})

    def status(self) -> Manifest:
        found: Manifest = self.api.get(CLUSTER, "c").get("status", {})
        return found

    def condition(self) -> tuple[str, str, str]:
        """Status, reason and message."""
        for each in self.status().get("conditions", ()):
            if each["type"] == "BackedUp":
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def wait_reason(self, reason: str) -> Manifest:
        """Wait until the condition has that reason; what the status tells of the newest snapshot."""
        try:
            wait_until(lambda: self.condition()[1] == reason, f"BackedUp says {reason}")
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}; the status is {self.status()}") from None
        found: Manifest = self.status()["backup"]
        return found

    def stored(self) -> list[str]:
        """The cluster's snapshots, as they lie in the bucket, oldest first."""
        folder = self._s3.bucket_folder.parent / BACKUPS / "kafscale-backups" / self.api.namespace
        return sorted(path.name for path in folder.glob("*.kfsnap"))

    def lose_metadata(self) -> None:
        """Everything under the cluster's prefix is gone. No broker may run."""
        start, end = f"{self.topics.prefix}/", f"{self.topics.prefix}0"  # `0` comes after `/`
        with grpc.insecure_channel(self._etcd.endpoint.removeprefix("http://")) as channel:
            request = rpc.DeleteRangeRequest(key=start.encode(), range_end=end.encode())
            deleted = rpc.KVStub(channel).DeleteRange(request, timeout=PATIENCE_SEC).deleted
        assert deleted > 0


@pytest.fixture
def cluster(api: KubeApi, etcd: EtcdServer, s3: S3Server, tmp_path: Path) -> Iterator[BackedUp]:
    topics = OperatedTopics(api, etcd, s3, tmp_path)
    try:
        topics.make_cluster()
        yield BackedUp(topics, etcd, s3)
    finally:
        topics.close()


def samples(operator: OperatorProcess) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=PATIENCE_SEC) as page:
        return str(page.read(), "utf-8")


def test_what_the_operator_backed_up_comes_back(cluster: BackedUp, operator: OperatorProcess) -> None:
    cluster.set_backups(schedule="0 0 1 1 *")
    wait_until(lambda: cluster.condition()[1] == "ClusterNotStarted", "it waits for a broker")
    topics = cluster.topics
    topics.brokers.start()
    first = cluster.wait_reason("SnapshotTaken")
    assert cluster.stored() == [first["key"].rpartition("/")[2]]
    topics.kafka_make("orders", 4, {"retention.ms": "86400000"})
    topic_id = topics.kafka_id("orders")
    cluster.set_backups(schedule="* * * * *")
    wait_until(lambda: len(cluster.stored()) > 1, "the next is taken when it is due", MINUTE_SECONDS)
    wait_until(lambda: cluster.status()["backup"]["key"] != first["key"], "that is told")
    told = cluster.status()["backup"]
    cluster.set_backups(suspend=True)
    cluster.wait_reason("Suspended")
    labels = f'{{cluster="c",namespace="{cluster.api.namespace}"}}'
    page = samples(operator)
    assert f"kafscale_backup_size_bytes{labels} {float(told['sizeBytes'])}" in page
    assert f"kafscale_backup_failures_total{labels} 0.0" in page
    told_of = {"ClusterNotStarted", "SnapshotTaken", "Suspended"}
    wait_until(lambda: topics.events("c") >= told_of, "events of all that turned")

    broker = topics.brokers.brokers[1]
    topics.brokers.kill(1)
    cluster.lose_metadata()
    broker.settings["backup_bucket"] = BACKUPS
    done = recovered(broker, "--backup", "newest")
    assert done["rebuilt"]["written"] == ["orders"]
    topics.brokers.start()
    topics.brokers.wait_until_led("orders")
    assert topics.kafka_id("orders") == topic_id
    assert topics.kafka_configs("orders") == {"retention.ms": "86400000"}


def test_a_failure_is_reported_until_it_is_corrected(cluster: BackedUp, operator: OperatorProcess) -> None:
    cluster.topics.brokers.start()
    cluster.set_backups(bucket="nowhere", keep=1, keepFor="1ms")
    wait_until(lambda: cluster.condition()[1] == "SnapshotFailed", "the failure is told")
    assert cluster.condition()[0] == "False"
    assert "There is no snapshot." in cluster.condition()[2]
    wait_until(lambda: "SnapshotFailed" in cluster.topics.events("c"), "the event of it")
    cluster.set_backups()
    key = cluster.wait_reason("SnapshotTaken")["key"]
    operator.kill9()
    cluster.api.patch(CLUSTER, "c", {"spec": {"backups": {"schedule": "* * * * *"}}})
    operator.start()
    wait_until(lambda: cluster.status()["backup"]["key"] != key, "the next operator goes on", MINUTE_SECONDS)
    wait_until(lambda: len(cluster.stored()) == 1, "the old one goes")
    cluster.api.patch(CLUSTER, "c", {"spec": {"backups": None}})
    wait_until(lambda: "backup" not in cluster.status(), "nothing is told of backups")
    assert cluster.condition() == ("", "", "")
    assert len(cluster.stored()) == 1
