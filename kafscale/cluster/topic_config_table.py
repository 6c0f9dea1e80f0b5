"""The topic configs, one row each: those of Kafka 4.1 and `iceberg_configs`. Kind, default, effect, documentation."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.cluster.config_kinds import (
    LONG_MAX,
    LONG_MIN,
    ConfigKind,
    ConfigType,
    boolean,
    fraction,
    list_of,
    one_of,
    throttled_replicas,
    whole_number,
)
from kafscale.cluster.iceberg_configs import ICEBERG_CONFIGS
from kafscale.formats.features import LARGE_SEGMENTS_LEVEL, MAX_LEGACY_SEGMENT_BYTES, SEGMENT_FORMAT

MIN_SEGMENT_BYTES: Final = 2**20

_WITHOUT_TIERED_STORAGE = " (there is no tiered storage to switch on: every segment is in the object store)"
_LARGER_SEGMENTS = (
    f"; above {MAX_LEGACY_SEGMENT_BYTES} only with feature level {LARGE_SEGMENTS_LEVEL} of {SEGMENT_FORMAT}"
)


class CompressionType(StrEnum):
    """How batches are stored; `producer` keeps each as its producer sent it."""

    UNCOMPRESSED = "uncompressed"
    ZSTD = "zstd"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    GZIP = "gzip"
    PRODUCER = "producer"


class MessageTimestampType(StrEnum):
    """The source of a record's timestamp: its producer or the broker."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CleanupPolicy(StrEnum):
    """The rules for old records."""

    COMPACT = "compact"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigRow:
    """One topic config.

    `default` is in Kafka's text; `setting` names the field of `Settings` that replaces it. `broker_name` is
    the broker config that Kafka takes the default from, None when there is none.
    """

    name: str
    kind: ConfigKind
    default: str
    broker_name: str | None
    documentation: str
    has_effect: bool = False
    setting: str | None = None


_INT, _LONG = ConfigType.INT, ConfigType.LONG

KAFKA_CONFIGS: Final[tuple[TopicConfigRow, ...]] = (
    TopicConfigRow(
        name="cleanup.policy",
        kind=list_of(CleanupPolicy),
        default="delete",
        broker_name="log.cleanup.policy",
        has_effect=True,
        documentation="The rule for old records: `delete` removes them by `retention.ms` and "
        "`retention.bytes`, `compact` keeps the newest record of each key (docs/compaction.md) and refuses records "
        "without a key; both may be given. An empty list keeps every record.",
    ),
    TopicConfigRow(
        name="compression.gzip.level",
        kind=whole_number(_INT, 1, 9, also=-1),
        default="-1",
        broker_name="compression.gzip.level",
        has_effect=True,
        documentation="The level for `compression.type` gzip, -1 for the usual 6.",
    ),
    TopicConfigRow(
        name="compression.lz4.level",
        kind=whole_number(_INT, 1, 17),
        default="9",
        broker_name="compression.lz4.level",
        has_effect=True,
        documentation="The level for `compression.type` lz4. 9, the default, is the fast compressor, as in Kafka; "
        "every other level is the slower one, which compresses better.",
    ),
    TopicConfigRow(
        name="compression.type",
        kind=one_of(CompressionType),
        default="producer",
        broker_name="compression.type",
        setting="compression_codec",
        has_effect=True,
        documentation="How a batch is stored that its producer did not compress; `producer` stores every "
        "batch as it came. A batch that its producer compressed is stored as it came, and one that would not get a "
        "sixteenth smaller. What follows such a batch in the partition is stored untried, up to fifteen times its "
        "bytes.",
    ),
    TopicConfigRow(
        name="compression.zstd.level",
        kind=whole_number(_INT, -131072, 22),
        default="3",
        broker_name="compression.zstd.level",
        has_effect=True,
        documentation="The level for `compression.type` zstd.",
    ),
    TopicConfigRow(
        name="delete.retention.ms",
        kind=whole_number(_LONG, 0),
        default="86400000",
        broker_name="log.cleaner.delete.retention.ms",
        has_effect=True,
        documentation="How long compaction keeps a tombstone, a record without a value, after it first met it: so "
        "long a consumer that reads from the start may take.",
    ),
    TopicConfigRow(
        name="file.delete.delay.ms",
        kind=whole_number(_LONG, 0),
        default="60000",
        broker_name="log.segment.delete.delay.ms",
        documentation="How long a broker's local file outlives its segment; brokers keep no local files.",
    ),
    TopicConfigRow(
        name="flush.messages",
        kind=whole_number(_LONG, 1),
        default=str(LONG_MAX),
        broker_name="log.flush.interval.messages",
        documentation="After how many records a broker syncs its local log; every acknowledged record is in "
        "the object store already.",
    ),
    TopicConfigRow(
        name="flush.ms",
        kind=whole_number(_LONG, 0),
        default=str(LONG_MAX),
        broker_name="log.flush.interval.ms",
        documentation="After how long a broker syncs its local log; every acknowledged record is in the "
        "object store already.",
    ),
    TopicConfigRow(
        name="follower.replication.throttled.replicas",
        kind=throttled_replicas(),
        default="",
        broker_name=None,
        documentation="Replicas whose copying is throttled; the object store replicates.",
    ),
    TopicConfigRow(
        name="index.interval.bytes",
        kind=whole_number(_INT, 0),
        default="4096",
        broker_name="log.index.interval.bytes",
        documentation="How densely a local index is filled; a segment's index counts records, not bytes.",
    ),
    TopicConfigRow(
        name="leader.replication.throttled.replicas",
        kind=throttled_replicas(),
        default="",
        broker_name=None,
        documentation="Replicas whose copying is throttled; the object store replicates.",
    ),
    TopicConfigRow(
        name="local.retention.bytes",
        kind=whole_number(_LONG, -2),
        default="-2",
        broker_name="log.local.retention.bytes",
        documentation="How much of a tiered topic stays on the broker; brokers keep nothing.",
    ),
    TopicConfigRow(
        name="local.retention.ms",
        kind=whole_number(_LONG, -2),
        default="-2",
        broker_name="log.local.retention.ms",
        documentation="How long a tiered topic's segments stay on the broker; brokers keep nothing.",
    ),
    TopicConfigRow(
        name="max.compaction.lag.ms",
        kind=whole_number(_LONG, 1),
        default=str(LONG_MAX),
        broker_name="log.cleaner.max.compaction.lag.ms",
        has_effect=True,
        documentation="How long a record may escape compaction, from the time when its segment is sealed; "
        "whatever `min.cleanable.dirty.ratio` says.",
    ),
    TopicConfigRow(
        name="max.message.bytes",
        kind=whole_number(_INT, 0),
        default="1048588",
        broker_name="message.max.bytes",
        setting="max_message_bytes",
        has_effect=True,
        documentation="The largest record batch that is accepted, as it comes from the producer.",
    ),
    TopicConfigRow(
        name="message.timestamp.after.max.ms",
        kind=whole_number(_LONG, 0),
        default="3600000",
        broker_name="log.message.timestamp.after.max.ms",
        has_effect=True,
        documentation="How far a record's timestamp may be ahead of the broker's clock; not checked with "
        "`message.timestamp.type` LogAppendTime.",
    ),
    TopicConfigRow(
        name="message.timestamp.before.max.ms",
        kind=whole_number(_LONG, 0),
        default=str(LONG_MAX),
        broker_name="log.message.timestamp.before.max.ms",
        documentation="How far a record's timestamp may be behind the broker's clock; a batch's header does "
        "not say its earliest timestamp, and records are not decoded.",
    ),
    TopicConfigRow(
        name="message.timestamp.type",
        kind=one_of(MessageTimestampType),
        default="CreateTime",
        broker_name="log.message.timestamp.type",
        has_effect=True,
        documentation="Whether records keep their producer's timestamp or get the time of the append.",
    ),
    TopicConfigRow(
        name="min.cleanable.dirty.ratio",
        kind=fraction(),
        default="0.5",
        broker_name="log.cleaner.min.cleanable.ratio",
        has_effect=True,
        documentation="A log is compacted once more than this part of it, 0 to 1, is new since the last time.",
    ),
    TopicConfigRow(
        name="min.compaction.lag.ms",
        kind=whole_number(_LONG, 0),
        default="0",
        broker_name="log.cleaner.min.compaction.lag.ms",
        has_effect=True,
        documentation="How long a record stays out of compaction; at most `max.compaction.lag.ms`. By its "
        "timestamp: segments whose records have none stay out of it as long as this is above 0.",
    ),
    TopicConfigRow(
        name="min.insync.replicas",
        kind=whole_number(_INT, 1),
        default="1",
        broker_name="min.insync.replicas",
        documentation="How many replicas must have a record; every acknowledged record is in the object "
        "store, which replicates.",
    ),
    TopicConfigRow(
        name="preallocate",
        kind=boolean(),
        default="false",
        broker_name="log.preallocate",
        documentation="Whether a local log file is allocated ahead; brokers keep no local files.",
    ),
    TopicConfigRow(
        name="remote.log.copy.disable",
        kind=boolean(),
        default="false",
        broker_name=None,
        documentation="Whether a tiered topic's uploads stop; there is no tier but the object store.",
    ),
    TopicConfigRow(
        name="remote.log.delete.on.disable",
        kind=boolean(),
        default="false",
        broker_name=None,
        documentation="Whether leaving tiered storage removes its data; there is no tier to leave.",
    ),
    TopicConfigRow(
        name="remote.storage.enable",
        kind=boolean(only=False, more=_WITHOUT_TIERED_STORAGE),
        default="false",
        broker_name=None,
        documentation="Whether the topic is tiered; refused when true, as by a Kafka broker without tiered "
        "storage.",
    ),
    TopicConfigRow(
        name="retention.bytes",
        kind=whole_number(_LONG, LONG_MIN),
        default="-1",
        broker_name="log.retention.bytes",
        setting="retention_bytes",
        has_effect=True,
        documentation="How many bytes a partition keeps, -1 for all: its oldest segments are removed as long as what "
        "is left has that many. Needs `delete` in `cleanup.policy`.",
    ),
    TopicConfigRow(
        name="retention.ms",
        kind=whole_number(_LONG, -1),
        default="604800000",
        broker_name="log.retention.ms",
        setting="retention_ms",
        has_effect=True,
        documentation="How long records are kept, -1 without limit: a segment is removed when its newest timestamp "
        "is older. Needs `delete` in `cleanup.policy`.",
    ),
    TopicConfigRow(
        name="segment.bytes",
        kind=whole_number(_LONG, MIN_SEGMENT_BYTES, more=_LARGER_SEGMENTS),
        default="1073741824",
        broker_name="log.segment.bytes",
        setting="segment_bytes",
        has_effect=True,
        documentation="How large a segment may become: a partition's buffer is flushed once it has this "
        "much, at the latest at 64 MiB, and segments are merged into segments of up to this size where it is "
        "larger than the broker's own target.",
    ),
    TopicConfigRow(
        name="segment.index.bytes",
        kind=whole_number(_INT, 4),
        default="10485760",
        broker_name="log.index.size.max.bytes",
        documentation="The size of a local index file; a segment's index is as large as it needs to be.",
    ),
    TopicConfigRow(
        name="segment.jitter.ms",
        kind=whole_number(_LONG, 0),
        default="0",
        broker_name="log.roll.jitter.ms",
        documentation="Scatters `segment.ms`.",
    ),
    TopicConfigRow(
        name="segment.ms",
        kind=whole_number(_LONG, 1),
        default="604800000",
        broker_name="log.roll.ms",
        documentation="After how long a local segment is closed; a segment is complete once it is flushed.",
    ),
    TopicConfigRow(
        name="unclean.leader.election.enable",
        kind=boolean(),
        default="false",
        broker_name="unclean.leader.election.enable",
        documentation="Whether a replica that lags may lead; no leader ever lags the object store.",
    ),
)

_OWN_CONFIGS: Final = tuple(
    TopicConfigRow(
        name=row.name,
        kind=row.kind,
        default=row.default,
        broker_name=None,
        documentation=row.documentation,
        has_effect=True,
    )
    for row in ICEBERG_CONFIGS
)

TOPIC_CONFIGS: Final[tuple[TopicConfigRow, ...]] = tuple(
    sorted((*KAFKA_CONFIGS, *_OWN_CONFIGS), key=lambda row: row.name)
)
"""All of them, ascending by name."""

ROWS_BY_NAME: Final[Mapping[str, TopicConfigRow]] = {row.name: row for row in TOPIC_CONFIGS}
