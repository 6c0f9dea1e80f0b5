"""Clients that have no codec but gzip read what a broker, or another producer, compressed."""

import json
import os
import subprocess
import sys

import pytest

from tests.compat import tools
from tests.compat.conftest import NewTopic, Peer
from tests.support import wire
from tests.support.topics import unique_name

VALUE = "the same text again and again " * 20
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
CLIENT_TIMEOUT_SEC = 120
# kafka-python as pip installs it brings none of these libraries.
KAFKA_PYTHON = """
import sys
for name in ("snappy", "cramjam", "lz4", "lz4.frame", "zstandard"):
    sys.modules[name] = None
from kafka import KafkaConsumer, KafkaProducer
bootstrap, topic, command, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
if command == "produce":
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(count):
        producer.send(topic, sys.argv[5].encode())
    producer.close()
else:
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    for number in range(count):
        assert next(consumer).value == sys.argv[5].encode()
    consumer.close()
print("done")
"""


pytestmark = pytest.mark.usefixtures("only_kafscale")


def fill(broker: Peer, topic: str) -> int:
    """Write a batch in every codec; returns how many records there are then."""
    with wire.connect(broker) as connection:
        for codec in CODECS:
            records = wire.batch([VALUE.encode()] * 5, codec=codec)
            assert wire.produce(connection, topic, 0, records).error_code == 0
        wire.introduce(connection)
        stored = {
            one.compression_type for one in wire.batches_in(wire.fetch(connection, topic, {0: 0})[0].records)
        }
    assert stored >= {wire.CODECS[codec] for codec in CODECS if codec != "none"}
    return 5 * len(CODECS)


def kafka_python(broker: Peer, topic: str, command: str, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KAFKA_PYTHON, broker.bootstrap, topic, command, str(count), VALUE],
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_SEC,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def kafka_js(broker: Peer, topic: str, *arguments: str) -> str:
    done = subprocess.run(
        [
            "node",
            str(tools.KAFKA_JS_SOURCE / "client.js"),
            broker.bootstrap,
            topic,
            unique_name("group"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_SEC,
        check=False,
        env=os.environ | {"NODE_PATH": str(tools.KAFKA_JS / "node_modules")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kafka_python_reads_every_codec(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    kafka_python(broker, topic, "consume", fill(broker, topic))


def test_kafka_python_reads_what_it_wrote_itself(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    kafka_python(broker, topic, "produce", 10)
    kafka_python(broker, topic, "consume", 10)


@pytest.fixture
def kafka_js_is_there() -> None:
    reason = tools.kafka_js_missing()
    if reason:
        pytest.skip(reason)


@pytest.mark.usefixtures("kafka_js_is_there")
def test_kafka_js_reads_every_codec(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    count = fill(broker, topic)
    assert json.loads(kafka_js(broker, topic, "consume", str(count))) == [VALUE] * count


@pytest.mark.usefixtures("kafka_js_is_there")
def test_kafka_js_reads_what_it_wrote_itself(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    kafka_js(broker, topic, "produce", *[VALUE] * 10)
    assert json.loads(kafka_js(broker, topic, "consume", "10")) == [VALUE] * 10
