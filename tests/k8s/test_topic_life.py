"""Topics' lives under the operator: a real API server, a real etcd, a real broker, Kafka's own admin calls."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.kube_api import KubeApi
from tests.support.operated_topics import CLUSTER, OperatedTopics
from tests.support.operator_process import OperatorProcess, Operators
from tests.support.s3_server import S3Server, s3_server
from tests.support.waiting import PATIENCE_SEC


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_server(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def topics(api: KubeApi, etcd: EtcdServer, s3: S3Server, tmp_path: Path) -> Iterator[OperatedTopics]:
    found = OperatedTopics(api, etcd, s3, tmp_path)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def running(topics: OperatedTopics, operator: OperatorProcess) -> OperatedTopics:
    """With a cluster, its broker and the operator."""
    topics.make_cluster()
    topics.brokers.start()
    return topics


def test_a_topic_from_its_beginning_to_its_end(running: OperatedTopics) -> None:
    running.make(
        "orders", partitions=3, retention="24h", compression="zstd", config={"segment.bytes": 2000000}
    )
    status = running.wait_phase("orders", "Ready")
    configs = {"retention.ms": "86400000", "compression.type": "zstd", "segment.bytes": "2000000"}
    assert running.kafka_topics() == {"orders": 3}
    assert running.kafka_configs("orders") == configs
    assert (status["topicName"], status["partitions"], status["appliedConfig"]) == ("orders", 3, configs)
    assert status["topicId"] == running.kafka_id("orders")
    running.change("orders", partitions=5, retention=None, config={"segment.bytes": 3000000})
    assert running.wait_phase("orders", "Ready")["partitions"] == 5
    assert running.kafka_topics() == {"orders": 5}
    assert running.kafka_configs("orders") == {"compression.type": "zstd", "segment.bytes": "3000000"}
    running.delete("orders")
    running.wait_gone("orders")
    assert running.kafka_topics() == {}
    assert running.events("orders") >= {"TopicCreated", "AsDeclared", "TopicChanged", "TopicDeleted"}


def test_drift_is_corrected_and_undeclared_configs_stay(running: OperatedTopics) -> None:
    running.make("t", config={"retention.ms": 1000})
    running.wait_phase("t", "Ready")
    running.kafka_set("t", "max.message.bytes", "777777")
    running.kafka_grow("t", 4)
    running.kafka_set("t", "retention.ms", "5")
    expected = {"retention.ms": "1000", "max.message.bytes": "777777"}
    running.wait(lambda: running.kafka_configs("t") == expected, "drift is corrected", "t")
    assert running.kafka_topics() == {"t": 4}
    running.wait(lambda: "DriftCorrected" in running.events("t"), "that is told", "t")
    running.wait(lambda: running.status("t")["partitions"] == 4, "partitions are told", "t")
    assert "4 partitions, 1 are wanted" in running.ready("t")[1]


def test_a_topic_that_an_administrator_deletes_is_made_again(running: OperatedTopics) -> None:
    running.make("t", partitions=2)
    before = running.wait_phase("t", "Ready")["topicId"]
    running.kafka_delete("t")
    running.wait(lambda: running.status("t").get("topicId", before) != before, "it is another", "t")
    running.wait_phase("t", "Ready")
    assert running.kafka_topics() == {"t": 2}
    assert running.status("t")["topicId"] == running.kafka_id("t")


def test_a_topic_that_was_there_before_is_taken_on(running: OperatedTopics) -> None:
    running.kafka_make("t", 4, {"retention.ms": "7000", "segment.bytes": "3000000"})
    topic_id = running.kafka_id("t")
    running.make("r", topicName="t", partitions=2, config={"retention.ms": 9000})
    assert running.wait_phase("r", "Ready")["topicId"] == topic_id
    assert running.kafka_configs("t") == {"retention.ms": "9000", "segment.bytes": "3000000"}


def test_topic_waits_for_its_cluster_to_exist_and_start(
    topics: OperatedTopics, operator: OperatorProcess
) -> None:
    topics.make("t", partitions=2)
    assert "KafscaleCluster c" in topics.wait_reason("t", "ClusterNotFound", PATIENCE_SEC)
    topics.make_cluster()
    topics.wait_reason("t", "ClusterNotStarted")
    topics.brokers.start()
    topics.wait_phase("t", "Ready")
    assert topics.kafka_topics() == {"t": 2}


def test_one_of_two_resources_owns_the_topic_then_the_other(running: OperatedTopics) -> None:
    running.make("first", topicName="t", partitions=2)
    topic_id = running.wait_phase("first", "Ready")["topicId"]
    running.make("second", topicName="t", partitions=3)
    assert "first" in running.wait_reason("second", "TopicNamedTwice")
    assert running.kafka_topics() == {"t": 2}
    running.delete("first")
    running.wait_gone("first")
    assert running.wait_phase("second", "Ready")["topicId"] == topic_id
    assert running.kafka_topics() == {"t": 3}


def test_a_topic_that_is_to_be_retained_outlives_its_resource(running: OperatedTopics) -> None:
    running.make("t", deletionPolicy="Retain")
    running.wait_phase("t", "Ready")
    running.delete("t")
    running.wait_gone("t")
    assert running.kafka_topics() == {"t": 1}
    assert "TopicKept" in running.events("t")


def test_what_cannot_be_is_said(running: OperatedTopics) -> None:
    running.make("t", config={"retention.ms": "soon"})
    status = running.wait_phase("t", "Failed")
    assert "topicName" not in status
    assert "retention.ms" in running.ready("t")[1]
    running.change("t", config={"retention.ms": 5})
    running.wait_phase("t", "Ready")
    assert running.kafka_configs("t") == {"retention.ms": "5"}


def test_topics_are_created_without_broker_but_not_deleted(running: OperatedTopics) -> None:
    running.brokers.stop_all()
    running.make("t", partitions=2)
    running.make("u")
    running.wait_phase("t", "Ready")
    running.wait_phase("u", "Ready")
    running.delete("u")
    running.wait(lambda: running.status("u").get("phase") == "Deleting", "u is to be deleted", "u")
    running.brokers.start()
    running.wait_gone("u", PATIENCE_SEC)
    assert running.kafka_topics() == {"t": 2}


def test_topic_survives_deletion_of_cluster_and_resource(running: OperatedTopics) -> None:
    running.make("t")
    running.wait_phase("t", "Ready")
    running.api.delete(CLUSTER, "c")
    running.wait_reason("t", "ClusterNotFound", PATIENCE_SEC)
    running.delete("t")
    running.wait_gone("t")
    assert running.kafka_topics() == {"t": 1}


def test_an_etcd_that_is_away_is_waited_for(running: OperatedTopics, etcd: EtcdServer) -> None:
    running.make("t", partitions=2)
    running.wait_phase("t", "Ready")
    etcd.pause()
    try:
        running.change("t", partitions=4)
        running.wait_reason("t", "MetadataStoreUnreachable", PATIENCE_SEC)
    finally:
        etcd.resume()
    running.wait_phase("t", "Ready", PATIENCE_SEC)
    running.wait(lambda: running.kafka_topics() == {"t": 4}, "there are 4 partitions", "t")


def test_lost_etcd_is_not_written_before_its_rebuild(running: OperatedTopics) -> None:
    running.make("t", partitions=2, config={"retention.ms": -1})
    running.make("empty", partitions=2)
    before = running.wait_phase("t", "Ready")["topicId"]
    running.wait_phase("empty", "Ready")
    running.kafka_send("t", "kept")
    running.brokers.stop_all()
    running.lose_metadata()
    for name in ("t", "empty"):
        running.wait_reason(name, "ClusterNotStarted")
    running.change("t", partitions=3)
    running.wait(lambda: running.status("t")["observedGeneration"] == 2, "it was looked at again", "t")
    assert running.keys() == []
    running.recover("--apply")
    for name in ("t", "empty"):
        running.wait_phase(name, "Ready")
    running.brokers.start()
    running.brokers.wait_until_led("t", "empty")
    assert running.kafka_topics() == {"t": 3, "empty": 2}
    assert running.kafka_configs("t") == {"retention.ms": "-1"}
    assert [value for _, value in running.brokers.read_all(("t", 0))] == [b"kept"]
    assert running.status("t")["topicId"] == running.kafka_id("t") != before


def test_repeatedly_killed_operators_leave_nothing_half_done(
    topics: OperatedTopics, installed: Operators
) -> None:
    topics.make_cluster()
    topics.brokers.start()
    operator = installed.replica()
    operator.start()
    names = [f"t{number}" for number in range(12)]
    for name in names:
        topics.make(name, partitions=3, config={"retention.ms": 1000})
    topics.wait(lambda: len(topics.kafka_topics()) > 2, "some are made", "t0", PATIENCE_SEC)
    operator.kill9()
    operator.start()
    for name in names:
        topics.wait_phase(name, "Ready", PATIENCE_SEC)
    assert topics.kafka_topics() == dict.fromkeys(names, 3)
    for name in names:
        topics.change(name, config={"max.message.bytes": 777777, "retention.ms": None})
    topics.wait(
        lambda: any("max.message.bytes" in topics.kafka_configs(name) for name in names),
        "one",
        "t0",
        PATIENCE_SEC,
    )
    operator.kill9()
    for name in names[6:]:
        topics.change(name, config=None)
    for name in names[:3]:
        topics.delete(name)
    operator.start()
    for name in names[:3]:
        topics.wait_gone(name, PATIENCE_SEC)
    for name in names[3:]:
        topics.wait_phase(name, "Ready", PATIENCE_SEC)
    assert topics.kafka_topics() == dict.fromkeys(names[3:], 3)
    for name in names[3:6]:
        assert topics.kafka_configs(name) == {"max.message.bytes": "777777"}
    for name in names[6:]:
        assert topics.kafka_configs(name) == {}
