"""Brokers, etcd and S3 are killed, stopped, restarted and held up; what was acknowledged stays, once, in its place.

KAFSCALE_TEST_CLUSTER_SECONDS sets how long each kind of trouble goes on (default 3; every kind happens once
at least), KAFSCALE_TEST_SEED repeats a run's choices. Each run prints the checker's table.
"""

import contextlib
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_recover import recovered
from tests.support.audit import audit
from tests.support.cluster import Cluster, ClusterStores, running_cluster
from tests.support.cluster_chaos import GROUP, PLACES, SETTINGS, TOPIC, ZONES, ChaosRun
from tests.support.cluster_readers import UNUSED_GROUP
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import EtcdServer, etcd_cluster, etcd_server
from tests.support.fsck import CLEAN, fsck, problems
from tests.support.history_checker import Report
from tests.support.ledger import Ledger
from tests.support.nemesis import (
    Etcd,
    Trouble,
    asleep_before_publishing,
    etcd_away,
    kill,
    object_store_troubles,
    pause_past_the_lease,
    pause_within_the_lease,
    rolling_restart,
    uploads_of_the_dead,
    uploads_of_the_sleeping,
)
from tests.support.object_store_proxy import ObjectStoreProxy
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import S3Server, s3_server
from tests.support.secure_cluster import ClusterSecurity

SECONDS = float(os.environ.get("KAFSCALE_TEST_CLUSTER_SECONDS", "3"))
SEED = int(os.environ.get("KAFSCALE_TEST_SEED", random.SystemRandom().randrange(2**32)))
MISSING = etcd_missing() or s3_server_missing()

pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.timeout(900 + 4 * SECONDS),
]

PAUSES: tuple[Trouble, ...] = (pause_past_the_lease, pause_within_the_lease)
LATE_UPLOADS: tuple[Trouble, ...] = (uploads_of_the_dead, uploads_of_the_sleeping, asleep_before_publishing)
ALL: tuple[Trouble, ...] = (
    kill, *PAUSES, rolling_restart, etcd_away, object_store_troubles, *LATE_UPLOADS,
)  # fmt: skip
LONG_S = 20.0  # from here on there are also runs of everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """So many members of a cluster of etcd that those left are not enough."""

    members: Sequence[EtcdServer]

    def pause(self) -> None:
        for member in self.members:
            member.pause()

    def resume(self) -> None:
        for member in self.members:
            member.resume()


@contextlib.contextmanager
def running_etcd(folder: Path, members: int) -> Iterator[tuple[Sequence[str], Etcd]]:
    """Its endpoints, and what takes it away."""
    if members == 1:
        with etcd_server(folder) as server:
            yield (server.endpoint,), server
    else:
        with etcd_cluster(folder, members) as cluster:
            yield cluster.endpoints, Members(members=cluster.members[: members // 2 + 1])


@contextlib.contextmanager
def chaos_run(
    folder: Path,
    name: str,
    etcd_members: int = 1,
    security: ClusterSecurity | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[tuple[ChaosRun, S3Server]]:
    """Three brokers in three zones, S3 behind the proxy, etcd; nothing is left of it at the end.

    `security`: of brokers and clients; without it everything is open. `settings`: further ones of the brokers.
    """
    print(f"KAFSCALE_TEST_SEED={SEED} KAFSCALE_TEST_CLUSTER_SECONDS={SECONDS:g}")
    generator = random.Random(f"{SEED} {name}")
    with (
        s3_server(folder / "s3") as s3,
        running_etcd(folder / "etcd", etcd_members) as (endpoints, etcd),
        ObjectStoreProxy(s3.endpoint, seed=generator.randrange(2**32)) as proxy,
    ):
        stores = ClusterStores.of(endpoints, s3, s3_endpoint=proxy.url)
        racks = {broker_id: {"rack": zone} for broker_id, zone in ZONES.items()}
        secured = {} if security is None else {"make_broker": security.make_broker}
        with running_cluster(
            folder, stores, of_broker=racks, **{**SETTINGS, **(settings or {})}, **secured
        ) as cluster:
            if security is not None:
                security.allow(TOPIC, [GROUP, UNUSED_GROUP])
                cluster.clients = security.clients()
            run = ChaosRun(folder, cluster, etcd, proxy, generator)
            try:
                yield run, s3
            except Exception:
                etcd.resume()
                proxy.clear()
                run.print_what_is_known()
                raise
            finally:
                run.close()


def judge(run: ChaosRun, done: dict[str, int]) -> Report:
    """End the run and see that its report, which is printed, is good."""
    print(f"troubles: {done}")
    report = run.finish()
    report.check()
    assert run.gaps() == []
    return report


def check_the_bucket(bucket: Path, cluster: Cluster, ledger: Ledger) -> None:
    """Two more witnesses: what the records name is whole, and the objects alone hold all that was promised.

    They may hold more: what an older leader left unpublished under an offset that was then skipped.
    """
    cluster.stop_all()
    status, found = fsck(next(iter(cluster.brokers.values())), "--verify")
    assert status == CLEAN, problems(found)
    files = audit(bucket)
    stored = {place: [(one.offset, one.value) for one in files.records(*place)] for place in PLACES}
    ledger.check_promises(stored)
    print(f"{len(files.segments)} segments, {len(files.orphans)} orphans")


def check_recovery(folder: Path, run: ChaosRun, s3: S3Server) -> None:
    """One more witness: the bucket alone, without etcd, gives back each record at its offset, and no other."""
    endpoints = str(run.cluster.brokers[1].settings["etcd_endpoints"]).split(",")
    stores = ClusterStores.of(endpoints, s3)
    settings: dict[str, Any] = {**SETTINGS, "etcd_prefix": "/recovered"}
    cluster = Cluster(folder / "recovered", stores, brokers=1, **settings)
    try:
        recovered(cluster.brokers[1])
        cluster.start()
        cluster.wait_until_led(TOPIC)
        for place in PLACES:
            assert cluster.read_all(place) == run.final[place], place
        cluster.stop_all()
    finally:
        cluster.close()


RUNS = [
    pytest.param((kill, *PAUSES), 1, id="kill-and-pause"),
    pytest.param((kill,), 1, id="kill", marks=pytest.mark.nightly),
    pytest.param(PAUSES, 1, id="pause", marks=pytest.mark.nightly),
    pytest.param((etcd_away,), 1, id="etcd-away", marks=pytest.mark.nightly),
    pytest.param((etcd_away,), 3, id="etcd-without-quorum", marks=pytest.mark.nightly),
    pytest.param((object_store_troubles,), 1, id="object-store", marks=pytest.mark.nightly),
    pytest.param(LATE_UPLOADS, 1, id="late-uploads", marks=pytest.mark.nightly),
]
if SECONDS >= LONG_S:
    RUNS += [pytest.param(ALL, 1, id="everything"), pytest.param(ALL, 3, id="everything-with-three-etcds")]


@pytest.mark.parametrize(("troubles", "etcd_members"), RUNS)
def test_promises_are_kept(
    tmp_path: Path, request: pytest.FixtureRequest, troubles: tuple[Trouble, ...], etcd_members: int
) -> None:
    with chaos_run(tmp_path, request.node.name, etcd_members) as (run, s3):
        run.start(java=troubles == ALL)
        judge(run, run.run(troubles, SECONDS))
        check_the_bucket(s3.bucket_folder, run.cluster, run.history)
        if SECONDS >= LONG_S or kill in troubles:
            check_recovery(tmp_path, run, s3)


@pytest.mark.nightly
@pytest.mark.parametrize("etcd_members", [1] if SECONDS < LONG_S else [1, 3])
def test_promises_are_kept_by_secure_brokers(tmp_path: Path, etcd_members: int) -> None:
    """With TLS, logins, access rules and quotas: no client is kept out, refused or throttled, and nothing is lost."""
    security = ClusterSecurity(tmp_path / "certificates")
    with chaos_run(tmp_path, "secure", etcd_members, security) as (run, s3):
        run.start(java=SECONDS >= LONG_S)
        judge(run, run.run(ALL if SECONDS >= LONG_S else (kill,), SECONDS))
        security.check(run.cluster)
        check_the_bucket(s3.bucket_folder, run.cluster, run.history)
        if SECONDS >= LONG_S:
            check_recovery(tmp_path, run, s3)


@pytest.mark.nightly
def test_a_rolling_restart_is_not_noticed_by_clients_that_retry(tmp_path: Path) -> None:
    with chaos_run(tmp_path, "rolling restart") as (run, s3):
        run.start(direct=False, java=SECONDS >= LONG_S)
        report = judge(run, run.run((rolling_restart,), SECONDS))
        assert report.counts["unacknowledged"] == 0
        check_the_bucket(s3.bucket_folder, run.cluster, run.history)
        if SECONDS >= LONG_S:
            check_recovery(tmp_path, run, s3)
