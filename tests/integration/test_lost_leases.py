"""etcd is away for longer than a lease, again and again, while S3 refuses and holds uploads: clients get over it.

All brokers lose their leases then and register again one by one. KAFSCALE_TEST_CLUSTER_SECONDS sets for how long
outages go on (default: one of them, two by night), KAFSCALE_TEST_SEED repeats a run's choices.
"""

import os
import random
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.cluster import AWAY, CALL_TIMEOUT_S, Cluster, ClusterStores, running_cluster
from tests.support.cluster_load import ClusterLoad
from tests.support.cluster_readers import PASSING_ERRORS, GroupReader
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.history import History
from tests.support.history_checker import examine
from tests.support.ledger import Ledger, Place
from tests.support.load import RECONNECT_SECONDS, Worker
from tests.support.metrics_page import scrape
from tests.support.nightly import by_day
from tests.support.object_store_proxy import Fault, FaultKind, ObjectStoreProxy
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import s3_server
from tests.support.waiting import wait_until

SECONDS = float(os.environ.get("KAFSCALE_TEST_CLUSTER_SECONDS", "0"))
SEED = int(os.environ.get("KAFSCALE_TEST_SEED", random.SystemRandom().randrange(2**32)))
MISSING = etcd_missing() or s3_server_missing()

pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.timeout(900 + 4 * SECONDS),
]

LEASE_TTL_S = 3
OUTAGE_S = 5.0
LEAST_OUTAGES = by_day(1, by_night=2)
END_TIMEOUT_S = 120.0
TOPIC = "t"
PLACES: list[Place] = [(TOPIC, partition) for partition in range(6)]
GROUP = "group"
UPLOADS = frozenset({"PUT"})
SETTINGS: dict[str, object] = {
    "lease_ttl_sec": LEASE_TTL_S,
    "flush_interval_ms": 100,
    "group_initial_rebalance_delay_ms": 100,
    "log_level": "info",
}
METADATA_VERSION = 9
# What a member hears that was away for longer than its session.
OF_REBALANCES = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._NO_OFFSET,
    KafkaError._WAIT_COORD,
)


class MetadataReader(Worker):
    """Asks one broker for Metadata all the time; an answer without one of the living brokers is a failure."""

    def __init__(self, broker: KafscaleBroker, broker_id: int, expected: set[int], ledger: Ledger) -> None:
        super().__init__(f"metadata-of-{broker_id}", ledger)
        self._broker = broker
        self._expected = expected
        self.answers = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with wire.connect(self._broker, CALL_TIMEOUT_S) as connection:
                    while not self._stopping.wait(0.05):
                        self._check(connection)
            except AWAY:
                self._stopping.wait(RECONNECT_SECONDS)

    def _check(self, connection: wire.Wire) -> None:
        request = MetadataRequest(
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        reply = connection.call(request, MetadataResponse, METADATA_VERSION)
        named = {one.node_id for one in reply.brokers}
        leaders = {part.leader_id for topic in reply.topics for part in topic.partitions} - {-1}
        self.answers += 1
        if named != self._expected:
            self.ledger.fail(f"{self.name}: of the brokers {self._expected} it names {named}")
            self._stopping.set()
        elif not leaders | {reply.controller_id} <= named:
            self.ledger.fail(
                f"{self.name}: {leaders} lead, {reply.controller_id} controls, named are {named}"
            )
            self._stopping.set()


class CommittingReader(GroupReader):
    """A member that waits for each of its commits, as often as it has seen anything."""

    commit_every = 1

    def __init__(self, name: str, cluster: Cluster, history: History) -> None:
        super().__init__(name, cluster, PLACES, history, GROUP)
        self.longest_commit_s = 0.0
        self.failed_commits: Counter[str] = Counter()

    def _commit(self, consumer: Consumer) -> None:
        began = time.monotonic()
        try:
            if self._uncommitted:
                consumer.commit(asynchronous=False)
        except KafkaException as failed:
            error = failed.args[0]
            self.failed_commits[error.name()] += 1
            if not error.retriable() and error.code() not in (*PASSING_ERRORS, *OF_REBALANCES):
                self.ledger.fail(f"{self.name}: {error} for a commit")
        self.longest_commit_s = max(self.longest_commit_s, time.monotonic() - began)
        self._uncommitted = 0


def outage(etcd: EtcdServer, proxy: ObjectStoreProxy, generator: random.Random) -> None:
    """etcd stands still for longer than a lease, and S3 holds or refuses uploads a little longer than that."""
    held = Fault(kind=FaultKind.DELAY, methods=UPLOADS, probability=0.4, seconds=(0.5, 1.5 * OUTAGE_S))
    refused = Fault(kind=FaultKind.SLOW_DOWN, methods=UPLOADS, probability=0.6)
    with proxy.fault(held, refused):
        etcd.pause()
        try:
            time.sleep(OUTAGE_S)
        finally:
            etcd.resume()
        time.sleep(generator.uniform(0, 4))
    proxy.release()


def test_leases_lost_again_and_again_keep_clients(tmp_path: Path) -> None:
    """Once: consumers that hung in a commit for good, and records stored twice under a new producer epoch."""
    print(f"KAFSCALE_TEST_SEED={SEED} KAFSCALE_TEST_CLUSTER_SECONDS={SECONDS:g}")
    generator = random.Random(SEED)
    with (
        s3_server(tmp_path / "s3") as s3,
        etcd_server(tmp_path / "etcd") as etcd,
        ObjectStoreProxy(s3.endpoint, seed=generator.randrange(2**32)) as proxy,
    ):
        stores = ClusterStores.of((etcd.endpoint,), s3, s3_endpoint=proxy.url)
        with running_cluster(tmp_path, stores, **SETTINGS) as cluster:
            play(cluster, etcd, proxy, generator)


def play(cluster: Cluster, etcd: EtcdServer, proxy: ObjectStoreProxy, generator: random.Random) -> None:
    history = History()
    cluster.create_topic(TOPIC, len(PLACES))
    loads = [ClusterLoad(f"idempotent-{n}", cluster, PLACES, history) for n in range(2)]
    members = [CommittingReader(f"member-{n}", cluster, history) for n in range(2)]
    ids = set(cluster.brokers)
    asking = [MetadataReader(broker, each, ids, history) for each, broker in cluster.brokers.items()]
    workers: list[Worker] = [*loads, *members, *asking]
    for worker in workers:
        worker.start()
    try:
        wait_until(partial(has_seen_some, members, -1), "members read", END_TIMEOUT_S)
        until, outages = time.monotonic() + SECONDS, 0
        while outages < LEAST_OUTAGES or time.monotonic() < until:
            outage(etcd, proxy, generator)
            outages += 1
            cluster.check_alive()
            history.check_producers()
        cluster.wait_until_led(TOPIC)
        ended = sum(
            int(scrape(broker).value("kafscale_leases_ended_total")) for broker in cluster.brokers.values()
        )
        print(f"{outages} outages, {ended} leases ended, commits: {[m.longest_commit_s for m in members]}")
        assert ended >= len(ids), "brokers lost their leases"
        end(cluster, history, loads, members)
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(END_TIMEOUT_S)
    for member in members:
        print(f"{member.name}: longest commit {member.longest_commit_s:.1f} s, {dict(member.failed_commits)}")
    assert all(one.answers for one in asking)
    history.check_producers()
    judge(cluster, history)


def has_seen_some(members: list[CommittingReader], after: int) -> bool:
    return all(max(one.journal.last(place) for one in members) > after for place in PLACES)


def end(
    cluster: Cluster, history: History, loads: list[ClusterLoad], members: list[CommittingReader]
) -> None:
    """Producers end in good order, and the members, one of which may have been without partitions, see all."""
    for load in loads:
        load.stop()
    for load in loads:
        load.join(END_TIMEOUT_S)
    ends = {place: cluster.log_end_offset(place) - 1 for place in PLACES}

    def caught_up() -> bool:
        history.check_producers()
        return all(max(one.journal.last(place) for one in members) >= last for place, last in ends.items())

    wait_until(caught_up, "the group has seen all", END_TIMEOUT_S)


def judge(cluster: Cluster, history: History) -> None:
    sent = {place: cluster.read_all_sent(place) for place in PLACES}
    final = {place: [(one.offset, one.value) for one in records] for place, records in sent.items()}
    report = examine(replace(history.evidence(final), sent=sent))
    print(f"not acknowledged: {history.reasons() or 'nothing'}\n{report.table()}", flush=True)
    report.check()
