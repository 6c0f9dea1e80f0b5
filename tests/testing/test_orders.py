"""Faults that are ordered of a broker or of a cluster, as clients see them."""

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer

from kafscale.testing import KafkaBroker, KafkaCluster
from tests.support.waiting import PATIENCE_SEC


async def test_failed_produce_is_sent_again_by_the_client() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        failing = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=1)
        await producer.start()
        try:
            await producer.send_and_wait("orders", b"one")
        finally:
            await producer.stop()
        assert failing.hits == 2
        assert [record.value for record in broker.records("orders")] == [b"one"]


def test_own_requests_of_the_test_do_not_fail() -> None:
    with KafkaBroker() as broker, broker.fail("Produce", "UNKNOWN_SERVER_ERROR", times=None) as failing:
        broker.create_topic("orders")
        broker.produce("orders", "one")
        assert len(broker.records("orders")) == 1
        assert failing.hits == 0


def test_dropped_connection_after_the_request_leaves_the_record() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        broker.drop_connection("Produce", after=True)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE_SEC) == 0
        assert [record.value for record in broker.records("orders")] == [b"one"]


def test_delayed_answer_comes_once_the_clock_has_moved() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        with broker.delay("Produce", seconds=3600) as late:
            sent = producer.send("orders", b"one")
            late.wait_for_hits()
            assert len(broker.wait_for_records("orders", 1)) == 1
            assert not sent.is_done
            broker.clock.advance(3600)
            assert sent.get(PATIENCE_SEC).offset == 0
        producer.close()


def test_nothing_is_acknowledged_during_an_outage_of_the_store() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        acknowledged: list[object] = []
        with broker.store.outage() as outage:
            producer.produce("orders", b"one", on_delivery=lambda problem, _: acknowledged.append(problem))
            outage.wait_for_hits()
            assert not acknowledged
            assert broker.records("orders") == []
        assert producer.flush(PATIENCE_SEC) == 0
        assert acknowledged == [None]
        assert [record.value for record in broker.records("orders")] == [b"one"]


def test_fault_of_one_broker_is_not_the_clusters() -> None:
    with KafkaCluster(2) as cluster:
        one = cluster.brokers[0].fail("Metadata", "UNKNOWN_SERVER_ERROR", times=None)
        admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap})
        assert len(admin.list_topics(timeout=30).brokers) == 2
        one.remove()
        every = cluster.fail("CreateTopics", "POLICY_VIOLATION", times=1)
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            _create(admin, "orders")
        assert every.hits == 1
        _create(admin, "orders")
        assert cluster.topics() == ["orders"]


def _create(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_SEC)


def test_faults_do_not_hold_up_the_stop() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        broker.store.outage()
        broker.metadata_store.outage()
        broker.fail("ApiVersions", "UNKNOWN_SERVER_ERROR", times=None)


def test_unknown_names_are_refused() -> None:
    with KafkaBroker() as broker:
        with pytest.raises(
            ValueError, match="api='Produced' is not an API of this broker: did you mean Produce"
        ):
            broker.fail("Produced", "NOT_LEADER_OR_FOLLOWER")
        with pytest.raises(ValueError, match="error='NOT_LEADER' is not one of Kafka's errors"):
            broker.fail("Produce", "NOT_LEADER")


def test_session_of_a_group_member_ends_when_the_clock_says_so() -> None:
    with KafkaBroker() as broker:
        at_first = broker.clock.now_ms
        broker.clock.advance(7 * 24 * 3600)
        assert broker.clock.now_ms - at_first >= 7 * 24 * 3600 * 1000
        broker.create_topic("orders", configs={"retention.ms": 60_000})
        assert broker.produce("orders", "x").timestamp_ms >= at_first + 7 * 24 * 3600 * 1000
        with pytest.raises(ValueError, match="seconds=-1 is not legal"):
            broker.clock.advance(-1)
