"""The essence of librdkafka's own tests of transactions: 0098 (isolation), 0103 (producers), 0129 (aborts)."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.compat.conftest import Peer
from tests.support.librdkafka import assigned_consumer, take
from tests.support.topics import create_topic, unique_name
from tests.support.transactions.clients import Librdkafka
from tests.support.transactions.observing import high_watermark, last_stable_offset, stable_offset
from tests.support.waiting import PATIENCE_SEC, wait_until

PARTITIONS = 3
SMALL_FETCH = {"fetch_message_max_bytes": 1_000, "message_max_bytes": 1_000, "fetch_max_bytes": 1_000}


@pytest.fixture
def wide(peer: Peer) -> str:
    name = unique_name("wide")
    create_topic(peer, name, PARTITIONS)
    return name


def transactional(peer: Peer, **settings: object) -> Producer:
    configured = {"bootstrap.servers": peer.bootstrap, "transactional.id": unique_name("id"), "log_level": 0}
    producer = Producer({**configured, **{name.replace("_", "."): one for name, one in settings.items()}})
    producer.init_transactions(PATIENCE_SEC)
    return producer


def test_records_are_copied_with_their_offsets(peer: Peer, wide: str) -> None:
    """0103: a consumer's records, written and committed in transactions; each is aborted and done again."""
    source = unique_name("source")
    create_topic(peer, source, 1)
    plain = Producer({"bootstrap.servers": peer.bootstrap})
    for number in range(100):
        plain.produce(source, str(number), partition=0)
    assert plain.flush(PATIENCE_SEC) == 0
    group = unique_name("group")
    producer = transactional(peer)
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(source, 0, 0)])
        for first in range(0, 100, 20):
            messages: list[Any] = take(consumer, 20)
            for is_committed in (False, True):
                producer.begin_transaction()
                for message in messages:
                    producer.produce(wide, message.value(), partition=int(message.value()) % PARTITIONS)
                offsets = [TopicPartition(source, 0, messages[-1].offset() + 1)]
                producer.send_offsets_to_transaction(
                    offsets, consumer.consumer_group_metadata(), PATIENCE_SEC
                )
                if is_committed:
                    producer.commit_transaction(PATIENCE_SEC)
                else:
                    producer.abort_transaction(PATIENCE_SEC)
            wait_until(
                lambda end=first + 20: stable_offset(peer, group, source) == end,  # type: ignore[misc]
                "the offset is committed",
            )
    finally:
        consumer.close()
    for partition in range(PARTITIONS):
        expected = [b"%d" % number for number in range(100) if number % PARTITIONS == partition]
        with assigned_consumer(peer, wide, partition, isolation_level="read_committed") as reader:
            assert [one.value() for one in take(reader, len(expected))] == expected


def test_fenced_producer_fails_when_it_commits(peer: Peer, topic: str) -> None:
    """0103: the second one with the same id fences the first."""
    transactional_id = unique_name("id")
    first = transactional(peer, transactional_id=transactional_id)
    producer = transactional(peer, transactional_id=transactional_id)
    first.begin_transaction()
    with pytest.raises(KafkaException, match="_FENCED"):
        first.produce(topic, b"late", partition=0)
        first.commit_transaction(PATIENCE_SEC)
    producer.begin_transaction()
    producer.produce(topic, b"in time", partition=0)
    producer.commit_transaction(PATIENCE_SEC)
    read = Librdkafka().read(peer.bootstrap, topic, b"in time")
    assert [one.value for one in read] == [b"in time"]


def test_unknown_partition_can_be_aborted(peer: Peer, topic: str) -> None:
    """0103: a record for a partition that does not exist fails; the next transaction is committed."""
    producer = transactional(peer, message_timeout_ms=5_000, transaction_timeout_ms=30_000)
    producer.begin_transaction()
    producer.produce(topic, b"known", partition=0)
    with pytest.raises(KafkaException):
        producer.produce(topic, b"unknown", partition=7)
        producer.commit_transaction(PATIENCE_SEC)
    producer.abort_transaction(PATIENCE_SEC)
    producer.begin_transaction()
    producer.produce(topic, b"next", partition=0)
    producer.commit_transaction(PATIENCE_SEC)
    read = Librdkafka().read(peer.bootstrap, topic, b"next")
    assert [one.value for one in read] == [b"next"]


def test_small_fetches_skip_many_aborted_records(peer: Peer, topic: str) -> None:
    """0129: a fetch of nothing but aborted records is no error, and no end."""
    producer = transactional(peer, batch_num_messages=10)
    for is_committed in (False, True):
        for number in range(5):
            producer.begin_transaction()
            for _ in range(100):
                producer.produce(topic, b"x" * 90 + b"%d" % number, partition=0)
            assert producer.flush(PATIENCE_SEC) == 0  # an abort drops what is not sent
            if is_committed:
                producer.commit_transaction(PATIENCE_SEC)
            else:
                producer.abort_transaction(PATIENCE_SEC)
    wait_until(lambda: last_stable_offset(peer, topic) == 1_010, "the last marker is written")
    with assigned_consumer(peer, topic, isolation_level="read_committed", **SMALL_FETCH) as reader:
        messages: list[Any] = take(reader, 500)
    assert messages[0].offset() == 505
    assert [one.value()[-1:] for one in messages[::100]] == [b"0", b"1", b"2", b"3", b"4"]


def test_isolation_levels_differ_by_what_is_open_and_aborted(peer: Peer, topic: str) -> None:
    """0098: transactions of two producers in turns, one of them open at the end."""
    one, other = transactional(peer), transactional(peer)
    for number in range(4):
        for producer, name, is_committed in (
            (one, b"one", number % 2 == 0),
            (other, b"other", number % 2 == 1),
        ):
            producer.begin_transaction()
            producer.produce(topic, name + b"-%d" % number, partition=0)
            producer.flush(PATIENCE_SEC)
            if is_committed:
                producer.commit_transaction(PATIENCE_SEC)
            else:
                producer.abort_transaction(PATIENCE_SEC)
    one.begin_transaction()
    one.produce(topic, b"open", partition=0)
    one.flush(PATIENCE_SEC)
    wait_until(
        lambda: (last_stable_offset(peer, topic), high_watermark(peer, topic)) == (16, 17), "all is written"
    )
    with assigned_consumer(
        peer, topic, isolation_level="read_committed", enable_partition_eof=True
    ) as reader:
        committed = take_to_the_end(reader)
    with assigned_consumer(
        peer, topic, isolation_level="read_uncommitted", enable_partition_eof=True
    ) as reader:
        every = take_to_the_end(reader)
    assert committed == [b"one-0", b"other-1", b"one-2", b"other-3"]
    assert every == [b"%s-%d" % (name, n) for n in range(4) for name in (b"one", b"other")] + [b"open"]
    one.abort_transaction(PATIENCE_SEC)


def take_to_the_end(consumer: Consumer) -> list[bytes]:
    """The values up to the end that the broker names."""
    values: list[bytes] = []
    while True:
        message: Any = consumer.poll(PATIENCE_SEC)
        assert message is not None, f"no end, but {values}"
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            return values
        values.append(message.value())
