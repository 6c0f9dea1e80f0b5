"""kafka-python: produce, consume by assignment, and administer."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from tests.compat.conftest import AUTO_CREATE_PARTITIONS, NewTopic, Peer
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

TIME_MS = 1_700_000_000_000


@contextlib.contextmanager
def producing(broker: Peer, **config: Any) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **config)
    try:
        yield producer
    finally:
        producer.close()


@contextlib.contextmanager
def consuming(broker: Peer, *partitions: TopicPartition, **config: Any) -> Iterator[Any]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, **config)
    try:
        if partitions:
            consumer.assign(list(partitions))
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def admin(broker: Peer) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def take(consumer: Any, count: int) -> list[Any]:
    """That many records, in the order in which they came."""
    records: list[Any] = []

    def enough() -> bool:
        for batch in consumer.poll(timeout_ms=200).values():
            records.extend(batch)
        return len(records) >= count

    wait_until(enough, f"{count} records")
    return records


def send_all(broker: Peer, topic: str, values: list[bytes], **config: Any) -> list[Any]:
    with producing(broker, **config) as producer:
        futures = [producer.send(topic, value, partition=0) for value in values]
        return [future.get(PATIENCE_SEC) for future in futures]


@pytest.mark.parametrize("enable_idempotence", [True, False])
@pytest.mark.parametrize("compression_type", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_record_comes_back_whole(
    broker: Peer, new_topic: NewTopic, enable_idempotence: bool, compression_type: str | None
) -> None:
    topic = new_topic()
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (b"key", b"value" * 100, [("one", b"1"), ("one", b""), ("zwei", bytes(range(256)))]),
        (None, b"no key", []),
        (b"tombstone", None, []),
        (b"", b"", []),
    ]
    with producing(
        broker, enable_idempotence=enable_idempotence, compression_type=compression_type, linger_ms=50
    ) as producer:
        futures = [
            producer.send(topic, key=key, value=value, headers=headers, timestamp_ms=TIME_MS + number)
            for number, (key, value, headers) in enumerate(sent)
        ]
        acknowledged = [future.get(PATIENCE_SEC) for future in futures]
    assert [metadata.offset for metadata in acknowledged] == [0, 1, 2, 3]
    with consuming(broker, TopicPartition(topic, 0), auto_offset_reset="earliest") as consumer:
        records = take(consumer, 4)
    assert [(record.key, record.value, list(record.headers)) for record in records] == sent
    assert [record.timestamp for record in records] == [TIME_MS + number for number in range(4)]
    assert [record.offset for record in records] == [0, 1, 2, 3]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_level_stores_the_records(broker: Peer, new_topic: NewTopic, acks: int | str) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(20)]
    acknowledged = send_all(broker, topic, values, acks=acks, enable_idempotence=False)
    if acks != 0:  # else nothing tells the producer its offsets
        assert [metadata.offset for metadata in acknowledged] == list(range(20))
    with consuming(broker, TopicPartition(topic, 0), auto_offset_reset="earliest") as consumer:
        assert [record.value for record in take(consumer, 20)] == values


def test_many_batches_keep_their_order(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    values = [b"%06d" % number + b"x" * 200 for number in range(5000)]
    acknowledged = send_all(broker, topic, values, batch_size=4096, linger_ms=5)
    assert [metadata.offset for metadata in acknowledged] == list(range(5000))
    with consuming(broker, TopicPartition(topic, 0), auto_offset_reset="earliest") as consumer:
        records = take(consumer, 5000)
    assert [record.offset for record in records] == list(range(5000))
    assert [record.value for record in records] == values


def test_message_size_limit_stores_below_and_refuses_above(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"max.message.bytes": 100_000})
    # an idempotent kafka-python producer gives up for good at the first such error
    with producing(broker, max_request_size=10_000_000, enable_idempotence=False) as producer:
        assert producer.send(topic, b"x" * 99_000).get(PATIENCE_SEC).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, b"x" * 100_001).get(PATIENCE_SEC)
        assert producer.send(topic, b"after").get(PATIENCE_SEC).offset == 1
    with consuming(broker, TopicPartition(topic, 0), auto_offset_reset="earliest") as consumer:
        assert [len(record.value) for record in take(consumer, 2)] == [99_000, 5]


def test_consumer_seeks_to_ends_offset_and_time(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    with producing(broker) as producer:
        for number in range(10):  # one batch each, a second apart
            producer.send(topic, b"%d" % number, timestamp_ms=TIME_MS + 1000 * number).get(PATIENCE_SEC)
    with consuming(broker, partition) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        found = consumer.offsets_for_times({partition: TIME_MS + 3500})[partition]
        assert (found.offset, found.timestamp) == (4, TIME_MS + 4000)
        assert consumer.offsets_for_times({partition: TIME_MS + 9001})[partition] is None

        consumer.seek_to_beginning(partition)
        assert consumer.position(partition) == 0
        assert take(consumer, 10)[0].value == b"0"
        consumer.seek(partition, found.offset)
        assert [record.value for record in take(consumer, 6)] == [b"4", b"5", b"6", b"7", b"8", b"9"]
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 10
        send_all(broker, topic, [b"new"])
        assert [record.value for record in take(consumer, 1)] == [b"new"]


def test_an_offset_beyond_the_end_is_out_of_range(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    send_all(broker, topic, [b"a"])
    with consuming(broker, partition, auto_offset_reset="none") as consumer:
        consumer.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            wait_until(lambda: consumer.poll(timeout_ms=200), "an error")
    with consuming(broker, partition, auto_offset_reset="earliest") as consumer:
        consumer.seek(partition, 1000)
        assert take(consumer, 1)[0].offset == 0


def test_a_waiting_consumer_gets_a_record_soon_after_it_was_sent(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    with consuming(broker, TopicPartition(topic, 0), fetch_max_wait_ms=25_000) as consumer:
        consumer.seek(TopicPartition(topic, 0), 0)
        consumer.poll(timeout_ms=200)  # the fetch now waits at the broker for up to 25 s
        with producing(broker) as producer:
            producer.send(topic, b"now").get(PATIENCE_SEC)
        began = time.monotonic()
        take(consumer, 1)
        assert time.monotonic() - began < 20


def test_a_producer_creates_the_topic_it_names(broker: Peer) -> None:
    topic = unique_name()
    with producing(broker) as producer:
        assert producer.send(topic, b"first", partition=0).get(PATIENCE_SEC).offset == 0
        assert producer.partitions_for(topic) == set(range(AUTO_CREATE_PARTITIONS))


def test_no_topic_is_created_where_the_broker_does_not_allow_it(strict_broker: Peer) -> None:
    topic = unique_name()
    with producing(strict_broker, max_block_ms=1500) as producer, pytest.raises(KafkaError):
        producer.send(topic, b"lost").get(PATIENCE_SEC)
    with consuming(strict_broker) as consumer:
        assert topic not in consumer.topics()


def test_topics_are_created_listed_described_and_deleted(admin: Any) -> None:
    topic = unique_name()
    created = admin.create_topics({topic: {"num_partitions": 4, "configs": {"retention.ms": "3600000"}}})
    row = created["topics"][0]
    assert (row["name"], row["error_code"], row["num_partitions"]) == (topic, 0, 4)
    assert row["configs"]["retention.ms"]["value"] == "3600000"
    admin.wait_for_topics([topic])
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])[0]
    assert described["topic_id"] == row["topic_id"]
    assert sorted(one["partition_index"] for one in described["partitions"]) == [0, 1, 2, 3]
    assert {one["leader_id"] for one in described["partitions"]} == {
        broker["broker_id"] for broker in admin.describe_cluster()["brokers"]
    }
    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics(), "the topic is gone")


def test_validate_only_creates_nothing(admin: Any) -> None:
    topic = unique_name()
    admin.create_topics({topic: {"num_partitions": 1}}, validate_only=True)
    assert topic not in admin.list_topics()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_partitions": 0}, InvalidPartitionsError),
        ({"configs": {"no.such.key": "1"}}, InvalidConfigurationError),
        ({"configs": {"retention.ms": "soon"}}, InvalidConfigurationError),
        ({"configs": {"compression.type": "rar"}}, InvalidConfigurationError),
    ],
)
def test_a_topic_that_makes_no_sense_is_refused(
    admin: Any, options: dict[str, Any], error: type[KafkaError]
) -> None:
    topic = unique_name()
    with pytest.raises(error):
        admin.create_topics({topic: options})
    assert topic not in admin.list_topics()


@pytest.mark.parametrize("name", ["a" * 250, "..", "has space", "sla/sh"])
def test_a_name_that_is_not_legal_is_refused(admin: Any, name: str) -> None:
    with pytest.raises(InvalidTopicError):
        admin.create_topics({name: {"num_partitions": 1}})


def test_a_topic_cannot_be_created_twice_nor_deleted_when_absent(admin: Any, new_topic: NewTopic) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({new_topic(): {"num_partitions": 1}})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([unique_name("absent")])


def test_partitions_are_added_and_never_taken_away(broker: Peer, admin: Any, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    admin.create_partitions({topic: 5})
    wait_until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5, "five partitions")
    with producing(broker) as producer:
        assert producer.send(topic, b"new", partition=4).get(PATIENCE_SEC).offset == 0
    for count in (5, 3):
        with pytest.raises(InvalidPartitionsError):
            admin.create_partitions({topic: count})


def test_a_topics_configs_are_altered_described_and_reset(admin: Any, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"retention.ms": "1000000"})

    def described(config_filter: str) -> dict[str, Any]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        result: dict[str, Any] = admin.describe_configs([resource], config_filter=config_filter)["topic"][
            topic
        ]
        return result

    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "5000"})])
    wait_until(lambda: described("all")["max.message.bytes"]["value"] == "5000", "the new value")
    assert {key: row["value"] for key, row in described("modified").items()} == {
        "retention.ms": "1000000",
        "max.message.bytes": "5000",
    }
    assert described("all")["max.message.bytes"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"

    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    wait_until(lambda: described("all")["retention.ms"]["value"] == "604800000", "Kafka's default")
    assert set(described("modified")) == {"max.message.bytes"}


def test_deleted_records_are_gone_and_the_log_starts_behind_them(
    broker: Peer, admin: Any, new_topic: NewTopic
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    send_all(broker, topic, [b"%d" % number for number in range(10)])
    result = admin.delete_records({partition: 4})
    assert result[partition]["low_watermark"] == 4
    with consuming(broker, partition, auto_offset_reset="earliest") as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 4}
        consumer.seek_to_beginning(partition)
        assert [record.offset for record in take(consumer, 6)] == list(range(4, 10))
