"""etcd does not answer for longer than leases last: brokers that lead go on acknowledging, without an error."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, ClusterStores, running_cluster
from tests.support.cluster_load import ClusterLoad, DirectLoad
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.history import History
from tests.support.history_checker import examine
from tests.support.ledger import Place
from tests.support.load import Load
from tests.support.nightly import by_day
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import s3_server
from tests.support.waiting import PATIENCE_SEC, wait_until

MISSING = etcd_missing() or s3_server_missing()
PLACES: list[Place] = [("t", index) for index in range(6)]
LEASE_TTL_SEC = by_day(2, by_night=10)
OUTAGE_SEC = by_day(5.0, by_night=30.0)

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path / "etcd") as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdServer) -> Iterator[Cluster]:
    with s3_server(tmp_path / "s3") as s3:
        stores = ClusterStores.of((etcd.endpoint,), s3)
        settings = {"flush_interval_ms": 100, "lease_ttl_sec": LEASE_TTL_SEC}
        with running_cluster(tmp_path, stores, **settings) as running:
            running.create_topic("t", len(PLACES))
            yield running


def test_no_produce_fails_while_etcd_is_away(cluster: Cluster, etcd: EtcdServer) -> None:
    """Also of producers that send each record once, and take every error for one."""
    history = History()
    loads: list[Load] = [
        ClusterLoad("idempotent", cluster, PLACES, history),
        DirectLoad("direct", cluster, PLACES, history, answer_timeout_s=PATIENCE_SEC),
    ]
    names = {load.name for load in loads}

    def wait_for_all() -> None:
        seen = history.count()
        wait_until(lambda: names <= history.producers(seen), "every producer is acknowledged something")

    for load in loads:
        load.start()
    try:
        wait_for_all()
        before = history.count()
        etcd.pause()
        try:
            until = time.monotonic() + OUTAGE_SEC
            while time.monotonic() < until:
                wait_for_all()
            assert history.reasons() == {}
            acknowledged = history.count() - before
        finally:
            etcd.resume()
        cluster.wait_until_led("t")
        wait_for_all()
    finally:
        for load in loads:
            load.stop()
        for load in loads:
            load.join(PATIENCE_SEC)
    print(
        f"{acknowledged} records acknowledged in {OUTAGE_SEC:g} s without etcd, leases of {LEASE_TTL_SEC} s"
    )
    history.check_producers()
    cluster.wait_until_led("t")
    examine(history.evidence({place: cluster.read_all(place) for place in PLACES})).check()
