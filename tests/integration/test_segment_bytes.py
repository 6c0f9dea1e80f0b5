"""A topic's `segment.bytes` changes on a running broker, past 2^31 and back; every record is read at each step."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka.protocol.admin import UpdateFeaturesRequest, UpdateFeaturesResponse

from tests.support import librdkafka, wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import PATIENCE_MS, PATIENCE_SEC

SMALL, LARGE = 2**20, 2**31 + 1
RECORD = bytes(300_000)
RECORDS_PER_STEP = 8


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    # Nothing is read from memory but what a consumer has just caused to be read.
    with running_broker(tmp_path, flush_interval_ms=200, cache_size=0, compression_codec="none") as broker:
        yield broker


class Topic:
    """One topic, its config, and all that was ever produced to it."""

    def __init__(self, broker: KafscaleBroker) -> None:
        self.name = unique_name()
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._sent: list[bytes] = []
        create_topic(broker, self.name, 1, {"segment.bytes": SMALL})

    def set_segment_bytes(self, size: int) -> None:
        """Raises `KafkaException` when it is refused."""
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        resource.add_incremental_config(
            ConfigEntry("segment.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
        )
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SEC)

    @property
    def segment_bytes(self) -> str | None:
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        value: str | None = (
            self._admin.describe_configs([resource])[resource].result(PATIENCE_SEC)["segment.bytes"].value
        )
        return value

    def produce_and_read_all(self) -> None:
        values = [b"%d " % (len(self._sent) + n) + RECORD for n in range(RECORDS_PER_STEP)]
        client = librdkafka.producer(self._broker, enable_idempotence=True, batch_size=400_000, linger_ms=0)
        for answer in librdkafka.send_all(client, self.name, values):
            assert isinstance(answer, Message), str(answer)
        self._sent += values
        self.read_all()

    def read_all(self) -> None:
        with librdkafka.assigned_consumer(self._broker, self.name) as consumer:
            read = [message.value() for message in librdkafka.take(consumer, len(self._sent))]
        assert read == self._sent


def finalize(broker: KafscaleBroker) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="kafscale.segment.format", max_version_level=2, upgrade_type=1
    )
    request = UpdateFeaturesRequest(timeout_ms=PATIENCE_MS, feature_updates=[update], validate_only=False)
    with wire.connect(broker) as connection:
        reply = connection.call(request, UpdateFeaturesResponse, 1)
    assert reply.error_code == 0, reply


def test_small_to_larger_than_2_gib_and_back(broker: KafscaleBroker) -> None:
    topic = Topic(broker)
    topic.produce_and_read_all()
    with pytest.raises(KafkaException, match=r"upgrade --feature kafscale\.segment\.format=2"):
        topic.set_segment_bytes(LARGE)
    assert topic.segment_bytes == str(SMALL)
    finalize(broker)
    topic.produce_and_read_all()
    for size in (LARGE, 2**63 - 1, SMALL):
        topic.set_segment_bytes(size)
        assert topic.segment_bytes == str(size)
        topic.produce_and_read_all()
    broker.restart()
    topic.read_all()
    topic.set_segment_bytes(LARGE)  # the level is finalized for good
    broker.kill9()
    broker.start()
    topic.set_segment_bytes(LARGE + 1)
    topic.produce_and_read_all()
