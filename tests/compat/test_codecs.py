"""Every codec between the clients, byte for byte: compressed by a producer, or by the broker for a topic."""

import random
import struct
from collections.abc import Sequence
from contextlib import closing

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka import KafkaConsumer, TopicPartition

from tests.compat.conftest import NewTopic, Peer
from tests.support import librdkafka, wire
from tests.support.java import JavaRecord, ToolServer
from tests.support.waiting import PATIENCE_SEC, wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LENGTHS = [0, 1, 100, 5_000, 70_000, 200_000]  # the last two are larger than a snappy or lz4 block


def values(seed: str) -> list[bytes]:
    """Values that compress well and values that do not at all."""
    generator = random.Random(seed)
    repetitive = [(b"%d:" % length + b"kafscale " * (length // 9 + 1))[:length] for length in LENGTHS]
    return repetitive + [generator.randbytes(length) for length in LENGTHS]


@pytest.mark.parametrize("codec", CODECS)
def test_from_java_to_librdkafka(broker: Peer, java: ToolServer, new_topic: NewTopic, codec: str) -> None:
    topic, sent = new_topic(), values(codec)
    records = [JavaRecord(value=value, key=b"k%d" % n, partition=0) for n, value in enumerate(sent)]
    config = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 100}
    results = java.produce(topic, records, config)
    assert [result.get("offset") for result in results] == list(range(len(sent))), results
    with librdkafka.assigned_consumer(broker, topic) as consumer:
        received = librdkafka.take(consumer, len(sent))
    assert [message.value() for message in received] == sent
    assert [message.key() for message in received] == [record.key for record in records]


@pytest.mark.parametrize("codec", CODECS)
def test_from_librdkafka_to_java(broker: Peer, java: ToolServer, new_topic: NewTopic, codec: str) -> None:
    topic, sent = new_topic(), values(codec)
    client = librdkafka.producer(broker, compression_type=codec, linger_ms=100)
    results: Sequence[object] = librdkafka.send_all(client, topic, sent)
    assert all(isinstance(result, Message) for result in results), results
    received = java.consume(topic, 0, len(sent), {"bootstrap.servers": broker.bootstrap})
    assert [record.value for record in received] == sent
    assert [record.offset for record in received] == list(range(len(sent)))


# The fastest and the most thorough level of each codec, and its default.
BY_THE_BROKER = [
    {"compression.type": "snappy"},
    *({"compression.type": "gzip", "compression.gzip.level": level} for level in (-1, 1, 9)),
    *({"compression.type": "lz4", "compression.lz4.level": level} for level in (9, 1, 17)),
    *({"compression.type": "zstd", "compression.zstd.level": level} for level in (3, -7, 19)),
]


def stored_codecs(broker: Peer, topic: str) -> list[int]:
    """The codec of each stored batch, by its number in the batch's attributes."""
    codecs: list[int] = []
    offset = 0
    with wire.connect(broker) as connection:
        wire.introduce(connection)
        while True:
            part = wire.fetch(connection, topic, {0: offset}, max_wait_ms=0)[0]
            data, position = bytes(part.records or b""), 0
            if not data:
                return codecs
            while position < len(data):
                base_offset, length = struct.unpack_from(">qi", data, position)
                attributes, last_offset_delta = struct.unpack_from(">hi", data, position + 21)
                codecs.append(attributes & 7)
                offset = base_offset + last_offset_delta + 1
                position += 12 + length


def assert_every_client_reads(broker: Peer, java: ToolServer, topic: str, sent: list[bytes]) -> None:
    """Java, librdkafka and kafka-python get the same values at the same offsets."""
    by_java = java.consume(topic, 0, len(sent), {"bootstrap.servers": broker.bootstrap})
    assert [(record.offset, record.value) for record in by_java] == list(enumerate(sent))
    with librdkafka.assigned_consumer(broker, topic) as consumer:
        by_librdkafka = librdkafka.take(consumer, len(sent))
    assert [(message.offset(), message.value()) for message in by_librdkafka] == list(enumerate(sent))
    found: list[tuple[int, bytes]] = []
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)) as client:
        client.assign([TopicPartition(topic, 0)])
        client.seek_to_beginning()

        def enough() -> bool:
            for records in client.poll(timeout_ms=200).values():
                found.extend((record.offset, record.value) for record in records)
            return len(found) >= len(sent)

        wait_until(enough, "kafka-python has read everything")
    assert found == list(enumerate(sent))


@pytest.mark.parametrize("configs", BY_THE_BROKER, ids=lambda configs: "-".join(map(str, configs.values())))
def test_what_the_broker_compressed_is_read_by_every_client(
    broker: Peer, java: ToolServer, new_topic: NewTopic, configs: dict[str, object]
) -> None:
    topic, sent = new_topic(configs=configs), values(str(configs))
    # In one batch that the test makes itself: a client may divide the records as it likes, whatever its linger,
    # and a batch of values that do not compress is stored as it is.
    with wire.connect(broker) as connection:
        assert wire.produce(connection, topic, 0, wire.batch(sent)).error_code == 0
    assert set(stored_codecs(broker, topic)) == {wire.CODECS[str(configs["compression.type"])]}
    assert_every_client_reads(broker, java, topic, sent)


def test_a_topics_compression_changes_while_clients_go_on(
    broker: Peer, java: ToolServer, new_topic: NewTopic
) -> None:
    """One producer and one consumer stay connected; batches of all codecs lie side by side."""
    topic, sent = new_topic(configs={"compression.type": "uncompressed"}), list[bytes]()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    producer = librdkafka.producer(broker, compression_type="none")

    def has_effect(codec: str) -> bool:
        sent.append(b"%06d the same words again and again " % len(sent) * 50)
        (result,) = librdkafka.send_all(producer, topic, [sent[-1]])
        assert isinstance(result, Message), result
        return stored_codecs(broker, topic)[-1] == wire.CODECS[codec]

    with librdkafka.assigned_consumer(broker, topic) as consumer:
        for codec in (*CODECS, "none"):
            name = "uncompressed" if codec == "none" else codec
            change = ConfigEntry("compression.type", name, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
            for future in admin.incremental_alter_configs([resource]).values():
                future.result(PATIENCE_SEC)
            before = len(sent)
            wait_until(lambda codec=codec: has_effect(codec), f"{codec} has its effect")  # type: ignore[misc]
            values_now = [message.value() for message in librdkafka.take(consumer, len(sent) - before)]
            assert values_now == sent[before:]
    assert set(stored_codecs(broker, topic)) == set(range(5))
    assert_every_client_reads(broker, java, topic, sent)
