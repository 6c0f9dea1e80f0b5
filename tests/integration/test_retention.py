"""Old records leave a running broker, by its own rules and by those of a bucket, and consumers go on."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka import KafkaAdminClient

from tests.integration.conftest import StartBroker
from tests.integration.test_recover import lose_metadata, recovered
from tests.support.broker import KafscaleBroker
from tests.support.librdkafka import assigned_consumer, next_error, producer, send_all, take
from tests.support.metrics_page import scrape
from tests.support.sealing import (
    NEVER_SEALED,
    WORTHWHILE_AT_ONCE,
    wait_until_sealed,
    worthwhile_value,
)
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_SEC, wait_until

Produce = Callable[..., None]

TOPIC = "orders"
AN_HOUR_MS = 3_600_000
LOOKING_OFTEN = {"retention_check_interval_ms": 50, "flush_interval_ms": 5}
OUT_OF_THE_STORE = {
    "cache_size": 0,
    "readahead_segments": 0,
    "flush_interval_ms": 5,
    "merge_bytes_per_sec": 0,
    **WORTHWHILE_AT_ONCE,
}


def now_ms() -> int:
    return int(time.time() * 1000)


def produce_slices(broker: KafscaleBroker, count: int, **fields: int) -> None:
    """Each record is a slice of its own in the journal."""
    client = producer(broker, linger_ms=0)
    for number in range(count):
        send_all(client, TOPIC, [b"%d" % number * 100], **fields)


def produce_segments(broker: KafscaleBroker, count: int, **fields: int) -> None:
    """Each record is a segment of its own."""
    client = producer(broker, linger_ms=0, message_max_bytes=2_000_000)
    for number in range(count):
        send_all(client, TOPIC, [worthwhile_value(str(number))], **fields)
        wait_until_sealed(broker)


KINDS = [
    pytest.param(produce_segments, WORTHWHILE_AT_ONCE, id="segments"),
    pytest.param(produce_slices, NEVER_SEALED, id="slices in the journal"),
]


def log_range(broker: KafscaleBroker) -> tuple[int, int]:
    """Log start and log end offset as ListOffsets tells.

    Of a consumer that fetches nothing: librdkafka 2.16's `close` never returns, once in some hundred times, when
    it meets a fetch that was just answered with OFFSET_OUT_OF_RANGE.
    """
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        start, end = consumer.get_watermark_offsets(
            TopicPartition(TOPIC, 0), timeout=PATIENCE_SEC, cached=False
        )
    finally:
        consumer.close()
    return start, end


def alter_config(broker: KafscaleBroker, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SEC)


def size_bytes(broker: KafscaleBroker) -> int:
    """As `kafka-log-dirs.sh --describe` tells it."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        ((directory,),) = [one["log_dirs"] for one in admin.describe_log_dirs()]
        return sum(part["partition_size"] for topic in directory["topics"] for part in topic["partitions"])
    finally:
        admin.close()


def segment_files(broker: KafscaleBroker) -> list[Path]:
    """The partition's segments, by offset."""
    return sorted((broker.data_folder / "objects").rglob(f"{TOPIC}/0/*.kfs"))


@pytest.mark.parametrize(("produce", "sealing"), KINDS)
def test_records_past_retention_are_gone_for_every_client(
    start_broker: StartBroker, produce: Produce, sealing: dict[str, Any]
) -> None:
    broker = start_broker(**LOOKING_OFTEN, **sealing)
    create_topic(broker, TOPIC, 1)
    produce(broker, 5, timestamp=now_ms() - 2 * AN_HOUR_MS)
    produce(broker, 3, timestamp=now_ms())
    assert log_range(broker) == (0, 8)
    alter_config(broker, "retention.ms", str(AN_HOUR_MS))
    wait_until(lambda: log_range(broker) == (5, 8), "the old records have expired")
    with assigned_consumer(broker, TOPIC, offset=2, auto_offset_reset="earliest") as consumer:
        assert [message.offset() for message in take(consumer, 3)] == [5, 6, 7]
    with assigned_consumer(broker, TOPIC, offset=2) as consumer:
        assert next_error(consumer).name() == "_AUTO_OFFSET_RESET"
    # Counted after the note for a rebuild, which comes after the range.
    wait_until(
        lambda: scrape(broker).value("kafscale_segments_expired_total", limit="time") == 5, "they are counted"
    )
    broker.restart()
    assert log_range(broker) == (5, 8)


@pytest.mark.parametrize(("produce", "sealing"), KINDS)
def test_a_partition_shrinks_to_retention_bytes(
    start_broker: StartBroker, produce: Produce, sealing: dict[str, Any]
) -> None:
    broker = start_broker(**LOOKING_OFTEN, **sealing)
    create_topic(broker, TOPIC, 1)
    produce(broker, 20)
    whole = size_bytes(broker)
    alter_config(broker, "retention.bytes", str(whole // 2))
    wait_until(lambda: log_range(broker)[0] > 0, "the oldest segments have gone")
    assert whole // 2 <= size_bytes(broker) < whole * 0.6
    start, end = log_range(broker)
    assert (start, end) == (10, 20)
    with assigned_consumer(broker, TOPIC, offset=start) as consumer:
        assert [message.offset() for message in take(consumer, end - start)] == [*range(start, end)]


def test_expired_topic_continues_at_its_end_after_rebuild(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(**LOOKING_OFTEN, retention_ms=AN_HOUR_MS)
    create_topic(broker, TOPIC, 1)
    produce_segments(broker, 4, timestamp=now_ms() - 2 * AN_HOUR_MS)
    wait_until(lambda: log_range(broker) == (4, 4), "all has expired")
    broker.stop()
    # As the broker would have after its grace period.
    for path in segment_files(broker):
        path.unlink()
        path.with_suffix(".index").unlink()
    lose_metadata(broker)
    (topic,) = recovered(broker)["topics"]
    assert (topic["topic"], topic["partitions"][0]["log_end_offset"]) == (TOPIC, 4)
    broker.start()
    produce_segments(broker, 1, timestamp=now_ms())
    assert log_range(broker) == (4, 5)


# --- objects that something else removes


def test_consumers_continue_at_first_object_left_by_bucket(start_broker: StartBroker) -> None:
    broker = start_broker(**OUT_OF_THE_STORE)
    create_topic(broker, TOPIC, 1)
    produce_segments(broker, 10)
    for path in segment_files(broker)[:6]:
        path.unlink()
    with assigned_consumer(broker, TOPIC, auto_offset_reset="earliest") as consumer:
        assert [message.offset() for message in take(consumer, 4, timeout_s=PATIENCE_SEC)] == [6, 7, 8, 9]
    assert log_range(broker) == (6, 10)
    assert scrape(broker).value("kafscale_segments_lost_total", outcome="dropped") == 6
    with assigned_consumer(broker, TOPIC) as consumer:
        assert next_error(consumer).name() == "_AUTO_OFFSET_RESET"


def test_object_lost_in_the_middle_is_reported_none_dropped(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(**OUT_OF_THE_STORE)
    create_topic(broker, TOPIC, 1)
    produce_segments(broker, 5)
    lost = segment_files(broker)[2]
    content = lost.read_bytes()
    lost.unlink()

    def is_told() -> bool:
        page = scrape(broker)
        return page.value("kafscale_segments_lost_total", outcome="kept") == 1

    with assigned_consumer(broker, TOPIC) as consumer:
        assert [message.offset() for message in take(consumer, 2)] == [0, 1]
        wait_until(lambda: consumer.poll(0.1) is None and is_told(), "the search is over")
        assert log_range(broker) == (0, 5)
        assert lost.name in broker.log_text()
        assert "kafscale fsck" in broker.log_text()
        lost.write_bytes(content)
        assert [message.offset() for message in take(consumer, 3, timeout_s=PATIENCE_SEC)] == [2, 3, 4]
