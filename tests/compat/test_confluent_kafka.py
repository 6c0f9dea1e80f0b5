"""confluent-kafka (librdkafka): produce, consume by assignment, and administer."""

from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.conftest import AUTO_CREATE_PARTITIONS, Peer
from tests.compat.conftest import NewTopic as TopicFactory
from tests.support import librdkafka
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

TIME_MS = 1_700_000_000_000
DYNAMIC_TOPIC_CONFIG = 1
Specification: Any = OffsetSpec


@pytest.fixture
def admin(broker: Peer) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def done(futures: dict[Any, Any]) -> list[Any]:
    """The results of an admin call; the first error is raised."""
    return [future.result(PATIENCE_SEC) for future in futures.values()]


def error_code(futures: dict[Any, Any]) -> int:
    """The error with which an admin call of one resource fails."""
    with pytest.raises(KafkaException) as raised:
        done(futures)
    code: int = raised.value.args[0].code()
    return code


def offsets(results: list[Message | KafkaError]) -> list[int | None]:
    return [result.offset() if isinstance(result, Message) else None for result in results]


@pytest.mark.parametrize("enable_idempotence", [True, False])
@pytest.mark.parametrize("compression_type", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_comes_back_whole(
    broker: Peer, new_topic: TopicFactory, enable_idempotence: bool, compression_type: str
) -> None:
    topic = new_topic()
    headers: list[tuple[str, str | bytes | None]] = [
        ("one", b"1"),
        ("one", None),
        ("zwei", bytes(range(256))),
    ]
    client = librdkafka.producer(
        broker, enable_idempotence=enable_idempotence, compression_type=compression_type, linger_ms=50
    )
    for number, (key, value) in enumerate([(b"key", b"value" * 100), (None, b""), (b"tombstone", None)]):
        client.produce(topic, value, key, partition=0, timestamp=TIME_MS + number, headers=headers)
    assert client.flush(PATIENCE_SEC) == 0
    with librdkafka.assigned_consumer(broker, topic) as consumer:
        messages = librdkafka.take(consumer, 3)
    assert [(one.key(), one.value()) for one in messages] == [
        (b"key", b"value" * 100),
        (None, b""),
        (b"tombstone", None),
    ]
    assert [one.headers() for one in messages] == [headers] * 3
    assert [one.timestamp() for one in messages] == [(TIMESTAMP_CREATE_TIME, TIME_MS + n) for n in range(3)]
    assert [one.offset() for one in messages] == [0, 1, 2]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_level_stores_the_records(broker: Peer, new_topic: TopicFactory, acks: str) -> None:
    topic = new_topic()
    values: list[bytes | None] = [b"%d" % number for number in range(20)]
    results = librdkafka.send_all(librdkafka.producer(broker, acks=acks), topic, values)
    if acks != "0":  # else nothing tells the producer its offsets
        assert offsets(results) == list(range(20))
    with librdkafka.assigned_consumer(broker, topic) as consumer:
        assert [one.value() for one in librdkafka.take(consumer, 20)] == values


def test_idempotent_producer_keeps_order_in_flight(broker: Peer, new_topic: TopicFactory) -> None:
    topic = new_topic()
    client = librdkafka.producer(broker, enable_idempotence=True, batch_num_messages=100, linger_ms=1)
    values: list[bytes | None] = [b"%06d" % number for number in range(10_000)]
    assert offsets(librdkafka.send_all(client, topic, values)) == list(range(10_000))
    with librdkafka.assigned_consumer(broker, topic) as consumer:
        assert [one.value() for one in librdkafka.take(consumer, 10_000)] == values


def test_message_size_limit_stores_below_and_refuses_above(broker: Peer, new_topic: TopicFactory) -> None:
    topic = new_topic()  # Kafka's default limit: 1,048,588 bytes
    client = librdkafka.producer(broker, message_max_bytes=10_000_000)
    large, too_large, after = (
        librdkafka.send_all(client, topic, [value])[0]
        for value in (b"x" * 1_048_000, b"x" * 1_048_589, b"after")
    )
    assert isinstance(large, Message)
    assert large.offset() == 0
    assert isinstance(too_large, KafkaError)
    assert too_large.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert isinstance(after, Message)
    assert after.offset() == 1
    with librdkafka.assigned_consumer(broker, topic) as consumer:
        assert [len(one.value() or b"") for one in librdkafka.take(consumer, 2)] == [1_048_000, 5]


def test_message_over_fetch_limits_is_delivered(broker: Peer, new_topic: TopicFactory) -> None:
    topic = new_topic()
    librdkafka.send_all(librdkafka.producer(broker), topic, [b"x" * 500_000, b"small"])
    with librdkafka.assigned_consumer(
        broker, topic, max_partition_fetch_bytes=1000, fetch_max_bytes=1000, message_max_bytes=1000
    ) as consumer:
        assert [len(one.value() or b"") for one in librdkafka.take(consumer, 2)] == [500_000, 5]


def test_consumer_seeks_to_ends_offset_and_time(broker: Peer, new_topic: TopicFactory) -> None:
    topic = new_topic()
    client = librdkafka.producer(broker)
    for number in range(10):  # one batch each, a second apart
        librdkafka.send_all(client, topic, [b"%d" % number], timestamp=TIME_MS + 1000 * number)
    with librdkafka.assigned_consumer(broker, topic, offset=OFFSET_BEGINNING) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SEC) == (0, 10)
        assert librdkafka.take(consumer, 10)[9].value() == b"9"

        times = [TopicPartition(topic, 0, TIME_MS + 3500)]
        found = consumer.offsets_for_times(times, timeout=PATIENCE_SEC)[0].offset
        assert found == 4
        late = consumer.offsets_for_times([TopicPartition(topic, 0, TIME_MS + 9001)], timeout=PATIENCE_SEC)
        assert late[0].offset == OFFSET_END

        consumer.seek(TopicPartition(topic, 0, found))
        assert librdkafka.take(consumer, 6)[0].value() == b"4"

    with librdkafka.assigned_consumer(broker, topic, enable_partition_eof=True) as consumer:
        assert librdkafka.take(consumer, 10)[9].value() == b"9"
        assert librdkafka.next_error(consumer).code() == KafkaError._PARTITION_EOF
        consumer.seek(TopicPartition(topic, 0, OFFSET_END))
        # Only then it knows where the end is: a record that comes before is not behind it.
        assert librdkafka.next_error(consumer).code() == KafkaError._PARTITION_EOF
        librdkafka.send_all(client, topic, [b"new"])
        assert librdkafka.take(consumer, 1)[0].value() == b"new"


def test_an_offset_beyond_the_end_is_out_of_range(broker: Peer, new_topic: TopicFactory) -> None:
    topic = new_topic()
    librdkafka.send_all(librdkafka.producer(broker), topic, [b"a"])
    with librdkafka.assigned_consumer(broker, topic, offset=1000) as consumer:
        error = librdkafka.next_error(consumer)
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in error.str().lower()


def test_the_end_of_a_partition_is_reported(broker: Peer, new_topic: TopicFactory) -> None:
    topic = new_topic()
    librdkafka.send_all(librdkafka.producer(broker), topic, [b"a"])
    with librdkafka.assigned_consumer(broker, topic, enable_partition_eof=True) as consumer:
        assert librdkafka.take(consumer, 1)[0].value() == b"a"
        assert librdkafka.next_error(consumer).code() == KafkaError._PARTITION_EOF


def test_a_producer_creates_the_topic_it_names(broker: Peer, admin: AdminClient) -> None:
    topic = unique_name()
    result = librdkafka.send_all(librdkafka.producer(broker), topic, [b"first"])
    assert offsets(result) == [0]
    assert (
        len(admin.list_topics(topic, timeout=PATIENCE_SEC).topics[topic].partitions) == AUTO_CREATE_PARTITIONS
    )


def test_a_consumer_creates_no_topic(broker: Peer, admin: AdminClient) -> None:
    topic = unique_name()  # librdkafka's consumers ask the broker not to create topics
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        with pytest.raises(KafkaException):
            consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=2)
    finally:
        consumer.close()
    assert topic not in admin.list_topics(timeout=PATIENCE_SEC).topics


def test_no_topic_is_created_where_the_broker_does_not_allow_it(strict_broker: Peer) -> None:
    topic = unique_name()
    client = librdkafka.producer(
        strict_broker, message_timeout_ms=5000, topic_metadata_propagation_max_ms=500
    )
    result = librdkafka.send_all(client, topic, [b"lost"])[0]
    assert isinstance(result, KafkaError)
    assert result.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    assert topic not in client.list_topics(timeout=PATIENCE_SEC).topics


def test_topics_are_created_listed_described_and_deleted(admin: AdminClient) -> None:
    topic = unique_name()
    done(admin.create_topics([NewTopic(topic, 4, config={"retention.ms": "3600000"})]))
    wait_until(lambda: topic in admin.list_topics(timeout=PATIENCE_SEC).topics, "the topic")
    listed = admin.list_topics(topic, timeout=PATIENCE_SEC).topics[topic]
    assert sorted(listed.partitions) == [0, 1, 2, 3]
    cluster = done({"cluster": admin.describe_cluster()})[0]
    assert {one.leader for one in listed.partitions.values()} == {node.id for node in cluster.nodes}
    assert cluster.controller.id in {node.id for node in cluster.nodes}
    assert cluster.cluster_id
    done(admin.delete_topics([topic]))
    wait_until(lambda: topic not in admin.list_topics(timeout=PATIENCE_SEC).topics, "the topic is gone")


def test_admin_errors_are_kafkas(admin: AdminClient, new_topic: TopicFactory) -> None:
    topic, absent = new_topic(), unique_name("absent")
    assert error_code(admin.create_topics([NewTopic(topic, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert error_code(admin.create_topics([NewTopic("no such/name", 1)])) == KafkaError.TOPIC_EXCEPTION
    bad = NewTopic(absent, 1, config={"retention.ms": "soon"})
    assert error_code(admin.create_topics([bad])) == KafkaError.INVALID_CONFIG
    assert error_code(admin.delete_topics([absent])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert error_code(admin.create_partitions([NewPartitions(absent, 2)])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert error_code(admin.create_partitions([NewPartitions(topic, 1)])) == KafkaError.INVALID_PARTITIONS
    resource = ConfigResource(ResourceType.TOPIC, absent)
    assert error_code(admin.describe_configs([resource])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_dry_run_of_an_admin_call_changes_nothing(admin: AdminClient, new_topic: TopicFactory) -> None:
    name, topic = unique_name(), new_topic()
    done(admin.create_topics([NewTopic(name, 1)], validate_only=True))
    done(admin.create_partitions([NewPartitions(topic, 3)], validate_only=True))
    listed = admin.list_topics(timeout=PATIENCE_SEC).topics
    assert name not in listed
    assert len(listed[topic].partitions) == 1


def test_partitions_are_added(broker: Peer, admin: AdminClient, new_topic: TopicFactory) -> None:
    topic = new_topic(partitions=2)
    done(admin.create_partitions([NewPartitions(topic, 5)]))
    wait_until(
        lambda: len(admin.list_topics(topic, timeout=PATIENCE_SEC).topics[topic].partitions) == 5, "five"
    )
    assert offsets(librdkafka.send_all(librdkafka.producer(broker), topic, [b"new"], partition=4)) == [0]


def test_configs_are_altered_one_key_at_a_time(admin: AdminClient, new_topic: TopicFactory) -> None:
    topic = new_topic(configs={"retention.ms": "1000000"})

    def alter(key: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        done(admin.incremental_alter_configs([resource]))

    def described() -> dict[str, Any]:
        entries: dict[str, Any] = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[0]
        return entries

    alter("max.message.bytes", "5000", AlterConfigOpType.SET)
    wait_until(lambda: described()["max.message.bytes"].value == "5000", "the new value")
    assert described()["retention.ms"].value == "1000000"
    assert described()["retention.ms"].source == DYNAMIC_TOPIC_CONFIG
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    wait_until(lambda: described()["retention.ms"].value == "604800000", "Kafka's default")
    assert described()["retention.ms"].is_default
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    wait_until(lambda: described()["cleanup.policy"].value == "delete,compact", "both policies")
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    wait_until(lambda: described()["cleanup.policy"].value == "compact", "one policy")


def test_the_old_way_to_alter_configs_replaces_them_all(admin: AdminClient, new_topic: TopicFactory) -> None:
    topic = new_topic(configs={"retention.ms": "1000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"max.message.bytes": "5000"})
    with pytest.deprecated_call():
        done(admin.alter_configs([resource]))

    def described(key: str) -> str:
        entries = done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[0]
        value: str = entries[key].value
        return value

    wait_until(lambda: described("max.message.bytes") == "5000", "the new value")
    assert described("retention.ms") == "604800000"


def test_the_brokers_configs_are_described(admin: AdminClient) -> None:
    node = done({"cluster": admin.describe_cluster()})[0].nodes[0]
    entries = done(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node.id))]))[0]
    assert entries["auto.create.topics.enable"].value == "true"
    assert entries["num.partitions"].value == str(AUTO_CREATE_PARTITIONS)
    assert entries["message.max.bytes"].value == "1048588"


def test_offsets_are_listed_by_every_specification(
    broker: Peer, admin: AdminClient, new_topic: TopicFactory
) -> None:
    topic = new_topic()
    client = librdkafka.producer(broker)
    for stamp in (1000, 3000, 2000):
        librdkafka.send_all(client, topic, [b"x"], timestamp=TIME_MS + stamp)

    def listed(specification: Any) -> tuple[int, int]:
        result = done(admin.list_offsets({TopicPartition(topic, 0): specification}))[0]
        return result.offset, result.timestamp

    assert listed(Specification.earliest()) == (0, -1)
    assert listed(Specification.latest()) == (3, -1)
    assert listed(Specification.max_timestamp()) == (1, TIME_MS + 3000)
    assert listed(Specification.for_timestamp(TIME_MS + 1001)) == (1, TIME_MS + 3000)


def test_deleted_records_are_gone_and_the_log_starts_behind_them(
    broker: Peer, admin: AdminClient, new_topic: TopicFactory
) -> None:
    topic = new_topic()
    librdkafka.send_all(librdkafka.producer(broker), topic, [b"%d" % n for n in range(10)])
    assert done(admin.delete_records([TopicPartition(topic, 0, 4)]))[0].low_watermark == 4
    with librdkafka.assigned_consumer(broker, topic, offset=OFFSET_BEGINNING) as consumer:
        assert [one.offset() for one in librdkafka.take(consumer, 6)] == list(range(4, 10))
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SEC) == (4, 10)
    assert done(admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]))[0].low_watermark == 10
    beyond = admin.delete_records([TopicPartition(topic, 0, 11)])
    assert error_code(beyond) == KafkaError.OFFSET_OUT_OF_RANGE


def test_watermarks_of_an_absent_partition_are_an_error(broker: Peer, new_topic: TopicFactory) -> None:
    topic = new_topic()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        with pytest.raises(KafkaException):
            consumer.get_watermark_offsets(TopicPartition(topic, 7), timeout=5)
    finally:
        consumer.close()
