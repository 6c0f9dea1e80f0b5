"""Partitions made from the records of the metadata store."""

import uuid
from dataclasses import replace

from kafscale.cluster.view import ClusterView
from kafscale.formats.partition_record import JournalPosition, PartitionRecord
from kafscale.formats.topic_record import encode_topic_record
from kafscale.log.partition import Partition
from kafscale.log.partition_factory import PartitionFactory
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Changes, Delete, KeyValue
from kafscale.protocol.compression import Codec
from kafscale.settings.broker import Settings

RECORD = PartitionRecord(leader_epoch=3)


class Shown:
    """A picture of the cluster with topics, and the factory for it."""

    def __init__(self) -> None:
        self.view = ClusterView("cluster")
        self.factory = PartitionFactory(self.view, Settings())
        self._revision = 0

    def topic(self, name: str, configs: dict[str, str]) -> TopicRecord:
        """The topic is there, with this configuration."""
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        record = TopicRecord(name=name, topic_id=topic_id, partition_count=2, configs=configs)
        value = encode_topic_record(record)
        self._apply(KeyValue(key=keys.topic(name), value=value, mod_revision=self._revision + 1))
        return record

    def gone(self, name: str) -> None:
        """The topic is there no longer."""
        self._apply(Delete(keys.topic(name)))

    def _apply(self, change: KeyValue | Delete) -> None:
        self._revision += 1
        self.view.apply(keys.TOPICS, Changes(puts_and_deletes=(change,), revision=self._revision))

    def led(self, topic: str, index: int = 0) -> Partition:
        """A partition that is made for the claim at revision 7."""
        partition = self.factory.led(topic, index, RECORD, 7)
        assert partition is not None
        return partition


def test_a_partition_is_led_since_its_claim_or_followed() -> None:
    shown = Shown()
    shown.topic("t", {})
    led, followed = shown.led("t"), shown.factory.followed("t", 1, RECORD, 7)
    assert followed is not None
    assert (led.is_led, led.is_followed, led.led_since_revision) == (True, False, 7)
    assert (followed.is_led, followed.is_followed) == (False, True)


def test_of_a_topic_that_is_gone_nothing_is_made() -> None:
    shown = Shown()
    shown.topic("t", {})
    shown.gone("t")
    assert shown.factory.led("t", 0, RECORD, 7) is None
    assert shown.factory.followed("t", 0, RECORD, 7) is None
    assert not shown.factory.has_made("t")


def test_no_partition_is_followed_by_the_record_of_another_topic() -> None:
    """The record is read by name; the picture of topics may be older or newer than it."""
    shown = Shown()
    topic_id = shown.topic("t", {}).topic_id
    of_it, of_another = (
        replace(RECORD, journal=JournalPosition(journal_id="journal", sequence=0, topic_id=one))
        for one in (topic_id, uuid.uuid4())
    )
    assert shown.factory.followed("t", 0, of_it, 7) is not None
    assert shown.factory.followed("t", 0, of_another, 7) is None


def test_a_partition_is_current_until_its_topic_is_forgotten() -> None:
    shown = Shown()
    shown.topic("t", {})
    partition, other = shown.led("t"), shown.led("t", 1)
    assert shown.factory.is_current(partition)
    shown.factory.forget("t")
    assert not shown.factory.is_current(partition)
    assert shown.factory.is_current(shown.led("t"))
    assert not shown.factory.is_current(partition)
    assert not shown.factory.is_current(other)


def test_a_partition_has_its_number_until_its_topic_is_forgotten() -> None:
    shown = Shown()
    shown.topic("t", {})
    first, other, again = shown.led("t"), shown.led("t", 1), shown.led("t")
    assert first.number == again.number != other.number
    assert shown.factory.has_made("t")
    shown.factory.forget("t")
    assert not shown.factory.has_made("t")
    assert shown.led("t").number not in (first.number, other.number)


def test_topic_configs_apply_to_new_and_existing_partitions() -> None:
    shown = Shown()
    shown.topic("t", {"compression.type": "gzip"})
    partition = shown.led("t")
    assert partition.rules.codec is Codec.GZIP
    changed = shown.topic("t", {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"})
    shown.factory.configure(changed, [partition])
    for one in (partition, shown.led("t", 1)):
        assert (one.rules.codec, one.rules.log_append_time) == (Codec.ZSTD, True)
        assert one.config is partition.config
