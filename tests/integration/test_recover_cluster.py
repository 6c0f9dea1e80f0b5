"""A cluster loses what it had in etcd, and `kafscale recover` rebuilds it from the bucket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_recover import REFUSED_TO_START, recover, recovered
from tests.support.cluster import Cluster, ClusterStores, running_cluster
from tests.support.cluster_load import ClusterLoad, DirectLoad
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import etcd_server
from tests.support.history import History
from tests.support.history_checker import examine
from tests.support.ledger import Place
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import s3_server
from tests.support.waiting import PATIENCE_SEC, wait_until

MISSING = etcd_missing() or s3_server_missing()
PLACES: list[Place] = [("t", index) for index in range(4)]
REFUSED = 3

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.nightly]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with s3_server(tmp_path / "s3") as s3, etcd_server(tmp_path / "etcd") as etcd:
        stores = ClusterStores.of((etcd.endpoint,), s3)
        settings = {"flush_interval_ms": 10, "lease_ttl_sec": 2, "etcd_prefix": "/before"}
        with running_cluster(tmp_path, stores, brokers=3, **settings) as running:
            running.create_topic("t", len(PLACES))
            yield running


def test_a_cluster_comes_back_from_its_bucket(cluster: Cluster) -> None:
    history = History()
    loads = [
        ClusterLoad("idempotent", cluster, PLACES, history),
        DirectLoad("direct", cluster, PLACES, history),
    ]
    for load in loads:
        load.start()
    try:
        for broker_id in (1, 2, 3):  # leaders change, with uploads in progress
            before = history.count()
            wait_until(lambda seen=before: history.count() > seen + 50, "acknowledgements")  # type: ignore[misc]
            cluster.kill(broker_id)
            cluster.start(broker_id)
    finally:
        for load in loads:
            load.stop()
        for load in loads:
            load.join(PATIENCE_SEC)
    broker = cluster.brokers[1]
    refused = recover(broker, "--apply")
    assert refused.returncode == REFUSED
    assert "stop them first" in refused.stderr
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id)

    for each in cluster.brokers.values():  # what was under the old prefix is lost
        each.settings["etcd_prefix"] = "/after"
    broker.launch_only()
    assert broker.wait_exit(40) == REFUSED_TO_START
    assert "kafscale recover" in broker.log_tail()
    [topic] = recovered(broker)["topics"]
    assert len(topic["partitions"]) == len(PLACES)
    assert max(one["highest_leader_epoch"] for one in topic["partitions"]) > 1
    cluster.start()
    cluster.wait_until_led("t")
    history.check_producers()
    examine(history.evidence({place: cluster.read_all(place) for place in PLACES})).check()
