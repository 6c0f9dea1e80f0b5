"""`kafscale fsck` beside a cluster on etcd and S3 of which a broker is killed, and what it says when objects go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import wire
from tests.support.cluster import Cluster, ClusterStores, running_cluster
from tests.support.cluster_load import ClusterLoad, DirectLoad
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import etcd_server
from tests.support.fsck import CLEAN, PROBLEMS, problems
from tests.support.fsck import fsck as check
from tests.support.history import History
from tests.support.ledger import Place
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import S3Server, s3_server
from tests.support.sealing import SEALED_SOON, wait_until_sealed
from tests.support.waiting import PATIENCE_SEC, wait_until

MISSING = etcd_missing() or s3_server_missing()
PLACES: list[Place] = [("t", index) for index in range(4)]

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Cluster, S3Server]]:
    with s3_server(tmp_path / "s3") as s3, etcd_server(tmp_path / "etcd") as etcd:
        of_cluster = ClusterStores.of((etcd.endpoint,), s3)
        settings = {
            "flush_interval_ms": 10,
            "lease_ttl_sec": 2,
            "merge_min_segments": 4,
            "merge_check_interval_ms": 200,
            **SEALED_SOON,
        }
        with running_cluster(tmp_path, of_cluster, brokers=3, **settings) as cluster:
            cluster.create_topic("t", len(PLACES))
            yield cluster, s3


def first_records(cluster: Cluster, partition: int) -> list[tuple[int, bytes | None]]:
    """Records of a fetch from the start; there may be a hole up to the log's end."""
    with wire.connect(cluster.brokers[cluster.leaders("t")[partition]]) as connection:
        part = wire.fetch(connection, "t", {partition: 0}, max_wait_ms=1000)[partition]
    assert part.error_code == 0, f"error {part.error_code}"
    return wire.records_in(part.records)


def fsck(cluster: Cluster, *arguments: str) -> tuple[int, dict[str, Any]]:
    """With the brokers' settings."""
    return check(cluster.brokers[1], *arguments)


@pytest.mark.nightly
def test_beside_a_cluster_of_which_a_broker_is_killed(stores: tuple[Cluster, S3Server]) -> None:
    cluster, s3 = stores
    history = History()
    loads = [
        ClusterLoad("idempotent", cluster, PLACES, history),
        DirectLoad("direct", cluster, PLACES, history),
    ]
    for load in loads:
        load.start()
    try:
        wait_until(lambda: history.count() > 100, "acknowledgements")
        cluster.kill(2)  # Leaders change, with flushes, sealing and merges in progress.
        status, fields = fsck(cluster, "--verify")
        assert (status, problems(fields)) == (CLEAN, [])
        cluster.start(2)
        status, fields = fsck(cluster, "--repair")
        assert (status, problems(fields)) == (CLEAN, [])
    finally:
        for load in loads:
            load.stop()
        for load in loads:
            load.join(PATIENCE_SEC)
    for broker in cluster.brokers.values():
        wait_until_sealed(broker)
    cluster.stop_all()
    status, fields = fsck(cluster, "--verify")
    assert (status, problems(fields), fields["brokers"]) == (CLEAN, [], [])
    assert sum(one["records"] for one in fields["partitions"]) >= history.count()

    # The newest segment of a partition goes, as a mistake of somebody's.
    orphans = {one["key"] for part in fields["partitions"] for one in part["orphans"]}
    segments = [key for key in s3.stored_files() if key.startswith("default/t/2/") and key.endswith(".kfs")]
    newest = max(key for key in segments if key not in orphans)
    (s3.bucket_folder / newest).unlink()
    status, fields = fsck(cluster)
    assert (status, problems(fields)) == (PROBLEMS, [("SEGMENT_MISSING", newest)])
    status, fields = fsck(cluster, "--repair", "--drop-missing")
    assert status == CLEAN
    [dropped] = [one for one in fields["repairs"] if one["action"] == "DROP_MISSING"]
    assert (dropped["partition"], dropped["outcome"]["done"]) == (2, True)
    cluster.start()
    cluster.wait_until_led("t")
    wait_until(lambda: first_records(cluster, 2), "what is left is served")
    status, fields = fsck(cluster, "--verify")
    assert {kind for kind, _ in problems(fields)} == {"HOLE_UNEXPLAINED"}
    assert fsck(cluster, "--verify", "--ignore-holes")[0] == CLEAN
