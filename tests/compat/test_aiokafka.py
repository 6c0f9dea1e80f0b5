"""aiokafka: produce, consume by assignment, and administer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin import NewTopic as TopicSpecification
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import TopicPartition

from tests.compat.conftest import AUTO_CREATE_PARTITIONS, NewTopic, Peer
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until_async

TIME_MS = 1_700_000_000_000


@contextlib.asynccontextmanager
async def producing(broker: Peer, **config: Any) -> AsyncIterator[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **config)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@contextlib.asynccontextmanager
async def consuming(broker: Peer, *partitions: TopicPartition, **config: Any) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, **config)
    await consumer.start()
    try:
        consumer.assign(list(partitions))
        yield consumer
    finally:
        await consumer.stop()


@contextlib.asynccontextmanager
async def administering(broker: Peer) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def take(consumer: Any, count: int) -> list[Any]:
    """That many records."""
    async with asyncio.timeout(PATIENCE_SEC):
        return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("enable_idempotence", [True, False])
@pytest.mark.parametrize("compression_type", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_a_record_comes_back_whole(
    broker: Peer, new_topic: NewTopic, enable_idempotence: bool, compression_type: str | None
) -> None:
    topic = new_topic()
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (b"key", b"value" * 100, [("one", b"1"), ("zwei", bytes(range(256)))]),
        (None, b"", []),
        (b"tombstone", None, []),
    ]
    async with producing(
        broker, enable_idempotence=enable_idempotence, compression_type=compression_type, linger_ms=50
    ) as producer:
        futures = [
            await producer.send(topic, value, key, partition=0, timestamp_ms=TIME_MS + n, headers=headers)
            for n, (key, value, headers) in enumerate(sent)
        ]
        acknowledged = [await future for future in futures]
    assert [metadata.offset for metadata in acknowledged] == [0, 1, 2]
    async with consuming(broker, TopicPartition(topic, 0), auto_offset_reset="earliest") as consumer:
        records = await take(consumer, 3)
    assert [(record.key, record.value, list(record.headers)) for record in records] == sent
    assert [(record.offset, record.timestamp) for record in records] == [(n, TIME_MS + n) for n in range(3)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_acks_level_stores_the_records(
    broker: Peer, new_topic: NewTopic, acks: int | str
) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(20)]
    async with producing(broker, acks=acks) as producer:
        futures = [await producer.send(topic, value, partition=0) for value in values]
        acknowledged = await asyncio.gather(*futures)
    if acks != 0:
        assert [metadata.offset for metadata in acknowledged] == list(range(20))
    async with consuming(broker, TopicPartition(topic, 0), auto_offset_reset="earliest") as consumer:
        assert [record.value for record in await take(consumer, 20)] == values


async def test_message_size_limit_stores_below_and_refuses_above(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"max.message.bytes": 100_000})
    async with producing(broker, max_request_size=10_000_000) as producer:
        assert (await producer.send_and_wait(topic, b"x" * 99_000)).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 100_001)
        assert (await producer.send_and_wait(topic, b"after")).offset == 1


async def test_consumer_seeks_to_ends_offset_and_time(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    async with producing(broker) as producer:
        for number in range(10):  # one batch each, a second apart
            await producer.send_and_wait(topic, b"%d" % number, timestamp_ms=TIME_MS + 1000 * number)
    async with consuming(broker, partition) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 10}
        found = (await consumer.offsets_for_times({partition: TIME_MS + 3500}))[partition]
        assert (found.offset, found.timestamp) == (4, TIME_MS + 4000)
        assert (await consumer.offsets_for_times({partition: TIME_MS + 9001}))[partition] is None

        await consumer.seek_to_beginning(partition)
        assert (await take(consumer, 10))[0].value == b"0"
        assert consumer.highwater(partition) == 10
        consumer.seek(partition, found.offset)
        assert (await take(consumer, 6))[0].value == b"4"
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 10


async def test_an_offset_beyond_the_end_is_out_of_range(broker: Peer, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)
    async with consuming(broker, partition, auto_offset_reset="none") as consumer:
        consumer.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            await take(consumer, 1)


async def test_a_waiting_consumer_gets_a_record_soon_after_it_was_sent(
    broker: Peer, new_topic: NewTopic
) -> None:
    partition = TopicPartition(new_topic(), 0)
    async with (
        consuming(broker, partition, fetch_max_wait_ms=30_000) as consumer,
        producing(broker) as producer,
    ):
        consumer.seek(partition, 0)
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)  # the fetch is in flight; it waits at the broker for up to 30 s
        await producer.send_and_wait(partition.topic, b"now")
        async with asyncio.timeout(25):
            assert (await waiting).value == b"now"


async def test_a_producer_creates_the_topic_it_names(broker: Peer) -> None:
    topic = unique_name()
    async with producing(broker) as producer:
        assert (await producer.send_and_wait(topic, b"first", partition=0)).offset == 0
        assert await producer.partitions_for(topic) == set(range(AUTO_CREATE_PARTITIONS))


async def test_no_topic_is_created_where_the_broker_does_not_allow_it(strict_broker: Peer) -> None:
    topic = unique_name()
    async with producing(strict_broker, request_timeout_ms=1500) as producer:
        with pytest.raises(KafkaError):
            await producer.send_and_wait(topic, b"lost")
    async with administering(strict_broker) as admin:
        assert topic not in await admin.list_topics()


async def test_topics_go_through_all_admin_calls(broker: Peer) -> None:
    topic = unique_name()
    async with administering(broker) as admin:
        created = await admin.create_topics(
            [TopicSpecification(topic, 2, 1, topic_configs={"retention.ms": "3600000"})]
        )
        assert [error[:2] for error in created.topic_errors] == [(topic, 0)]
        again = await admin.create_topics([TopicSpecification(topic, 2, 1)])
        assert [error[:2] for error in again.topic_errors] == [(topic, 36)]
        assert topic in await admin.list_topics()
        await admin.create_partitions({topic: NewPartitions(5)})
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({topic: NewPartitions(5)})
        described = (await admin.describe_topics([topic]))[0]
        assert sorted(one["partition"] for one in described["partitions"]) == [0, 1, 2, 3, 4]
        await admin.delete_topics([topic])

        async def gone() -> bool:
            return topic not in await admin.list_topics()

        await wait_until_async(gone, "the topic is gone")


async def test_a_topics_configs_are_altered_and_described(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"retention.ms": "1000000"})
    async with administering(broker) as admin:

        async def described() -> dict[str, str]:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            reply = (await admin.describe_configs([resource]))[0]
            return {entry[0]: entry[1] for entry in reply.resources[0][4]}

        await admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "5000"})]
        )

        async def altered() -> bool:
            return (await described())["max.message.bytes"] == "5000"

        await wait_until_async(altered, "the new value")
        assert (await described())["retention.ms"] == "604800000"  # all others go back to their defaults


async def test_deleted_records_are_gone(broker: Peer, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)
    async with producing(broker) as producer:
        for number in range(10):
            await producer.send_and_wait(partition.topic, b"%d" % number)
    async with administering(broker) as admin:
        assert await admin.delete_records({partition: RecordsToDelete(before_offset=4)}) == {partition: 4}
    async with consuming(broker, partition, auto_offset_reset="earliest") as consumer:
        assert [record.offset for record in await take(consumer, 6)] == list(range(4, 10))
