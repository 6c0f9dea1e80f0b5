"""Makes the partitions that this broker serves from the records of topics and partitions."""

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kafscale.cluster.topic_config_table import CleanupPolicy, CompressionType, MessageTimestampType
from kafscale.cluster.topic_configs import TopicConfig, effective, is_legal
from kafscale.cluster.view import ClusterView
from kafscale.formats.partition_record import PartitionRecord
from kafscale.log.batch_append import AppendRules
from kafscale.log.journal.broker_journal import BrokerJournal
from kafscale.log.leadership.machine import PartitionLeadership
from kafscale.log.partition import NO_TOPIC_ID, NOT_LED, Partition, PartitionId
from kafscale.log.writing.segment_buffer import SEGMENT_BUFFER_LIMIT_BYTES
from kafscale.metadata.model import TopicRecord
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import KafkaError
from kafscale.settings.broker import Settings

_CODECS = {
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}


def append_rules(config: TopicConfig) -> AppendRules:
    """The rules of appends in a topic's configuration."""
    return AppendRules(
        codec=_CODECS.get(config.compression_type),
        codec_level=config.compression_level,
        log_append_time=config.message_timestamp_type is MessageTimestampType.LOG_APPEND_TIME,
        # A buffer that cannot grow any more has nothing to wait for; merging makes the larger segments.
        segment_bytes=min(config.segment_bytes, SEGMENT_BUFFER_LIMIT_BYTES),
        requires_keys=CleanupPolicy.COMPACT in config.cleanup_policy,
    )


class PartitionFactory:
    """Makes partitions of the topics that `view` shows, and keeps the values that all of a topic share."""

    def __init__(self, view: ClusterView, settings: Settings, failures: Counter[str] | None = None) -> None:
        self._view = view
        self._settings = settings
        self._failures = ItemFailures(BackgroundWork.CONFIGS, failures)
        self._numbers: dict[str, dict[int, int]] = {}
        self._configs: dict[str, tuple[Mapping[str, str], TopicConfig, AppendRules]] = {}
        self._next_number = itertools.count()

    def followed(self, topic: str, index: int, record: PartitionRecord, revision: int) -> Partition | None:
        """A partition that another broker leads; None if there is no such topic any more.

        A record that names another topic than the one shown is older or newer than what is shown: none, too.
        """
        shown = self._view.topic(topic)
        if shown is not None and record.journal is not None and record.journal.topic_id != shown.topic_id:
            return None
        return self._make(topic, index, record, revision, NOT_LED)

    def led(
        self,
        topic: str,
        index: int,
        record: PartitionRecord,
        revision: int,
        leadership: PartitionLeadership | None = None,
        topic_id: uuid.UUID = NO_TOPIC_ID,
        journal: BrokerJournal | None = None,
    ) -> Partition | None:
        """A partition that this broker leads since `revision`; None if there is no such topic any more."""
        partition = self._make(topic, index, record, revision, revision, leadership)
        if partition is not None:
            partition.topic_id, partition.journal = topic_id, journal
        return partition

    def _make(
        self,
        topic: str,
        index: int,
        record: PartitionRecord,
        revision: int,
        led_since_revision: int,
        leadership: PartitionLeadership | None = None,
    ) -> Partition | None:
        topic_record = self._view.topic(topic)
        if topic_record is None:
            return None
        config, rules = self._configs_of(topic_record)
        return Partition(
            PartitionId(topic, index),
            self._number(topic, index),
            record,
            revision,
            config,
            rules,
            led_since_revision,
            leadership,
        )

    def configure(self, topic: TopicRecord, partitions: Iterable[Partition]) -> None:
        """Apply the topic's current configuration to its partitions."""
        config, rules = self._configs_of(topic)
        for partition in partitions:
            partition.config, partition.rules = config, rules

    def _configs_of(self, topic: TopicRecord) -> tuple[TopicConfig, AppendRules]:
        """The topic's configuration. Read once for all its partitions: there may be thousands."""
        read = self._configs.get(topic.name)
        if read is None or read[0] != topic.configs:
            config = self._config_of(topic)
            read = self._configs[topic.name] = topic.configs, config, append_rules(config)
        return read[1:]

    def _config_of(self, topic: TopicRecord) -> TopicConfig:
        """The topic's configs; if this program cannot read one, that one's default, and retention without limit.

        A value that only a newer release can read may have been meant to keep what the default would delete.
        """
        try:
            return effective(topic.configs, self._settings)
        except KafkaError as problem:
            self._failures.report(topic.name, problem)
        readable = {name: text for name, text in topic.configs.items() if is_legal(name, text)}
        return replace(effective(readable, self._settings), retention_ms=-1, retention_bytes=-1)

    def _number(self, topic: str, index: int) -> int:
        """The partition's number, the same for as long as the topic exists: caches outlive a change of leader."""
        numbers = self._numbers.setdefault(topic, {})
        if index not in numbers:
            numbers[index] = next(self._next_number)
        return numbers[index]

    def is_current(self, partition: Partition) -> bool:
        """False once the topic that the partition was made for was deleted, whatever has its name now."""
        numbers = self._numbers.get(partition.id.topic, {})
        return numbers.get(partition.id.index) == partition.number

    def has_made(self, topic: str) -> bool:
        """True if a partition of the topic was made since `forget`."""
        return topic in self._numbers

    def forget(self, topic: str) -> None:
        """Treat partitions of this name that are made from now on as those of another topic."""
        self._numbers.pop(topic, None)
        self._configs.pop(topic, None)
