"""The tests' cluster, its producers and its readers do what the chaos tests take for granted.

On one broker with embedded stores, so that what fails here is the harness and not the cluster.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.compat.tools import java_missing
from tests.support.cluster import Cluster, running_cluster
from tests.support.cluster_load import ClusterLoad, DirectLoad, JavaLoad, RetryingLoad
from tests.support.cluster_readers import ClientReader, GroupReader, OneBrokerReader, Reader
from tests.support.history import History
from tests.support.history_checker import examine
from tests.support.ledger import Place
from tests.support.load import Load
from tests.support.waiting import PATIENCE_SEC, wait_until

PLACES: list[Place] = [("t", 0), ("t", 1)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"group_initial_rebalance_delay_ms": 50, "flush_interval_ms": 20}
    with running_cluster(tmp_path, None, brokers=1, **settings) as made:
        made.create_topic("t", len(PLACES))
        yield made


def test_a_broker_comes_and_goes(cluster: Cluster) -> None:
    assert (cluster.running, cluster.live, cluster.leaders("t")) == ([1], [1], {0: 1, 1: 1})
    assert (cluster.led_by(1, "t"), cluster.led_by(2, "t")) == ([0, 1], [])
    cluster.pause(1)
    assert (cluster.running, cluster.live) == ([1], [])
    cluster.resume(1)
    cluster.wait_until_led("t")
    cluster.kill(1)
    assert (cluster.running, cluster.live) == ([], [])
    cluster.heal()
    cluster.wait_until_led("t")
    cluster.pause(1)
    cluster.heal()
    cluster.restart(1)
    cluster.wait_until_led("t")
    assert cluster.live == [1]


def test_a_broker_that_ended_by_itself_is_noticed(cluster: Cluster) -> None:
    cluster.check_alive()
    broker = cluster.brokers[1]
    broker.kill9()
    with pytest.raises(AssertionError, match="broker-1 ended by itself with exit code -9"):
        cluster.check_alive()
    cluster.kill(1)


def test_a_topic_without_live_leaders_is_noticed(cluster: Cluster) -> None:
    cluster.pause(1)
    with pytest.raises(AssertionError, match="t has live leaders"):
        cluster.wait_until_led("t", timeout_s=0.1)
    cluster.resume(1)


def test_answers_to_producers_and_reads_are_entered(cluster: Cluster, tmp_path: Path) -> None:
    history = History()
    loads: list[Load] = [
        ClusterLoad("idempotent", cluster, PLACES, history),
        RetryingLoad("retrying", cluster, PLACES, history),
        DirectLoad("direct", cluster, PLACES, history),
    ]
    readers: list[Reader] = [
        OneBrokerReader("one-broker", cluster, 1, PLACES, history),
        ClientReader("client", cluster, PLACES, history),
        GroupReader("member-a", cluster, PLACES, history, "g"),
        GroupReader("member-b", cluster, PLACES, history, "g"),
    ]
    workers = [*loads, *readers]
    for worker in workers:
        worker.start()
    try:
        wait_until(lambda: len(history.producers()) == 3, "every producer is acknowledged something")
        before = history.count()
        cluster.kill(1)
        cluster.start(1)
        wait_until(lambda: len(history.producers(before)) == 3, "and after a kill")
    finally:
        for load in loads:
            load.stop()
        for load in loads:
            load.join(PATIENCE_SEC)
    final = {place: cluster.read_all(place) for place in PLACES}
    ends = {place: final[place][-1][0] for place in PLACES}
    try:
        for reader in readers[:2]:
            wait_until(partial(reader.has_seen, ends), f"{reader.name} has seen all")
        wait_until(
            lambda: all(
                max(member.journal.last(place) for member in readers[2:]) == end
                for place, end in ends.items()
            ),
            "the group has seen all",
        )
    finally:
        for reader in readers:
            reader.stop()
        for reader in readers:
            reader.join(PATIENCE_SEC)
    history.check_producers()
    report = examine(history.evidence(final))
    report.check()
    assert {"idempotent", "retrying", "direct"} == history.producers()
    assert report.counts["readers"] == 4
    assert history.reasons(), "the kill took no answer from anybody"


@pytest.mark.skipif(java_missing() is not None, reason=str(java_missing()))
def test_answers_to_kafkas_verifiable_producer_are_entered(cluster: Cluster, tmp_path: Path) -> None:
    history = History()
    producer = JavaLoad(7, tmp_path, cluster, "t", history)
    try:
        producer.start()
        wait_until(producer.acknowledged_count, "the Java producer is acknowledged something")
        cluster.kill(1)
        before = producer.acknowledged_count()
        cluster.start(1)
        wait_until(lambda: producer.acknowledged_count() > before + 20, "and after a kill")
        producer.finish()
    finally:
        producer.close()
    history.check_producers()
    final = {place: cluster.read_all(place) for place in PLACES}
    report = examine(history.evidence(final))
    report.check()
    assert report.counts["acknowledged"] > 20
