"""A metadata store is lost, and `kafscale recover` brings back what producers were promised.

KAFSCALE_TEST_SEED repeats the moments of the kills.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from tests.formats.segments import SAMPLE_BUCKET
from tests.integration.conftest import StartBroker
from tests.integration.test_crash import read_everything, run_load_and_crashes
from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.librdkafka import assigned_consumer, take
from tests.support.nightly import by_day
from tests.support.topics import create_topic, describe_topic
from tests.support.waiting import PATIENCE_SEC

SEED = int(os.environ.get("KAFSCALE_TEST_SEED", random.SystemRandom().randrange(2**32)))
REFUSED_TO_START = 1
KILLS = by_day(1, by_night=2)


def recover(broker: KafscaleBroker, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """`kafscale recover` with the broker's settings."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "kafscale"), "recover", *arguments],
        env=broker.environment(),
        cwd=broker.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
    )


def recovered(broker: KafscaleBroker, *arguments: str) -> dict[str, Any]:
    """The report of `recover --apply`."""
    done = recover(broker, "--apply", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    fields = json.loads(done.stdout)
    assert isinstance(fields, dict)
    return fields


def lose_metadata(broker: KafscaleBroker) -> None:
    """The broker must not run."""
    for path in broker.data_folder.glob("metadata.db*"):
        path.unlink()


def assert_refuses_to_start(broker: KafscaleBroker) -> None:
    broker.launch_only()
    assert broker.wait_exit(20) == REFUSED_TO_START
    assert "kafscale recover" in broker.log_tail()


def cluster_id(broker: KafscaleBroker) -> str:
    return str(
        AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_SEC).cluster_id
    )


def test_everything_acknowledged_is_back_at_its_offset(start_broker: StartBroker) -> None:
    print(f"KAFSCALE_TEST_SEED={SEED}")
    broker = start_broker(flush_interval_ms=5)
    ledger = run_load_and_crashes(broker, SEED, KILLS)
    assert ledger.count() > 100
    before = read_everything(broker)
    broker.kill9()
    lose_metadata(broker)
    assert_refuses_to_start(broker)
    fields = recovered(broker)
    assert [topic["topic"] for topic in fields["topics"]] == ["other", "plain"]
    assert all(one["highest_leader_epoch"] >= KILLS for t in fields["topics"] for one in t["partitions"])
    assert recovered(broker)["rebuilt"]["already_there"] == ["other", "plain"]
    broker.start()
    after = read_everything(broker)
    ledger.check(after)
    for place, records in before.items():
        assert set(records) <= set(after[place])
    with wire.connect(broker) as connection:
        for place, records in after.items():
            answer = wire.produce(connection, *place, wire.batch([b"more:00000000:"]))
            assert (answer.error_code, answer.base_offset) == (0, records[-1][0] + 1)


def test_producers_are_remembered_and_the_cluster_is_the_same(start_broker: StartBroker) -> None:
    broker = start_broker(flush_interval_ms=5)
    create_topic(broker, "t", 2)
    with wire.connect(broker) as connection:
        producer_id, _ = wire.init_producer_id(connection)
        topic_id = describe_topic(connection, "t").topic_id
    identity = cluster_id(broker)

    def send(sequence: int) -> tuple[int, int]:
        records = wire.batch([b"x"] * 2, producer_id=producer_id, producer_epoch=0, sequence=sequence)
        with wire.connect(broker) as connection:
            answer = wire.produce(connection, "t", 0, records)
            return answer.error_code, answer.base_offset

    assert [send(2 * n) for n in range(7)] == [(0, 2 * n) for n in range(7)]
    broker.restart()
    broker.stop()
    lose_metadata(broker)
    assert recovered(broker)["rebuilt"]["cluster_id"] == identity
    broker.start()
    assert cluster_id(broker) == identity
    assert send(12) == (0, 12)  # the last batch again, and one of the four before it
    assert send(6) == (0, 6)
    assert send(16)[0] == 45  # OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(14) == (0, 14)
    with wire.connect(broker) as connection:
        assert len(wire.read_all(connection, "t", 0)) == 16
        other_id, _ = wire.init_producer_id(connection)
        described = describe_topic(connection, "t")
        # A partition of which the bucket holds nothing is not known any more.
        assert len(described.partitions) == 1 and described.topic_id != topic_id
    assert other_id > producer_id


def test_it_is_refused_while_the_broker_runs(start_broker: StartBroker) -> None:
    broker = start_broker()
    create_topic(broker, "t")
    done = recover(broker, "--apply")
    assert done.returncode != 0
    assert "in use by another process" in done.stderr


def test_the_bucket_of_another_writer_is_adopted(start_broker: StartBroker) -> None:
    broker = start_broker(s3_namespace="production", flush_interval_ms=5)
    broker.stop()
    shutil.rmtree(broker.data_folder)
    shutil.copytree(SAMPLE_BUCKET, broker.data_folder / "objects")
    assert_refuses_to_start(broker)
    assert recovered(broker)["rebuilt"]["written"] == ["java-snappy", "java-zstd", "orders"]
    broker.start()
    for topic in ("java-snappy", "java-zstd"):
        lines = read(broker, topic, 600)
        assert [line.offset() for line in lines] == list(range(600))
        assert [line.value() for line in lines] == [b"line-%05d " % n + b"payload " * 8 for n in range(600)]
    orders = read(broker, "orders", 70)
    assert [message.offset() for message in orders] == list(range(70))
    for n, message in enumerate(orders[:40]):
        # As the bytes have it; the samples' README names keys and values the other way round.
        assert message.key() == (None if n % 7 == 0 else b"value-%04d" % n)
        assert message.value() == (None if n % 3 == 0 else b"key-%d" % n)
        assert message.headers() == ([("trace", b"abc")] if n % 5 == 0 else None)
        assert message.timestamp()[1] == 1_790_000_000_000 + 10 * n
    for n, message in enumerate(orders[40:]):
        assert (message.key(), message.value()) == (b"gz-%04d" % n, b"k")
        assert message.timestamp()[1] == 1_790_000_001_000 + n
    with wire.connect(broker) as connection:
        answer = wire.produce(connection, "orders", 0, wire.batch([b"ours"]))
    assert (answer.error_code, answer.base_offset) == (0, 70)
    assert read(broker, "orders", 71)[-1].value() == b"ours"


def read(broker: KafscaleBroker, topic: str, count: int) -> list[Message]:
    """The first records of partition 0."""
    with assigned_consumer(broker, topic) as consumer:
        return take(consumer, count)
