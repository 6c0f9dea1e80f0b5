"""Every codec between the Java client and librdkafka, in both directions, byte for byte."""

import random
from collections.abc import Sequence

import pytest
from confluent_kafka import Message

from tests.compat.conftest import NewTopic, Peer
from tests.support import librdkafka
from tests.support.java import JavaRecord, ToolServer

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
