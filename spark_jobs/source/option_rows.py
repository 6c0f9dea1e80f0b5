"""The options of `format("kafscale")`, one row each: names and meanings are those of Spark's own Kafka source."""

from dataclasses import dataclass

BOTH, BATCH, STREAMING = "batch, streaming", "batch", "streaming"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One option. `legal`: its values; `default`: the value without it, in words; `queries`: where it is legal."""

    name: str
    legal: str
    default: str
    queries: str = BOTH
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptionRow:
    """A short name for a broker setting that says where the topics are."""

    name: str
    variable: str


STORE_OPTIONS: tuple[StoreOptionRow, ...] = (
    StoreOptionRow(name="dataDir", variable="KAFSCALE_DATA_DIR"),
    StoreOptionRow(name="etcd", variable="KAFSCALE_ETCD_ENDPOINTS"),
    StoreOptionRow(name="bucket", variable="KAFSCALE_S3_BUCKET"),
    StoreOptionRow(name="region", variable="KAFSCALE_S3_REGION"),
    StoreOptionRow(name="endpoint", variable="KAFSCALE_S3_ENDPOINT"),
    StoreOptionRow(name="namespace", variable="KAFSCALE_S3_NAMESPACE"),
)

SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN = "subscribe", "subscribePattern", "assign"
STARTING_OFFSETS, ENDING_OFFSETS = "startingOffsets", "endingOffsets"
STARTING_TIMESTAMP, ENDING_TIMESTAMP = "startingTimestamp", "endingTimestamp"
STARTING_OFFSETS_BY_TIMESTAMP = "startingOffsetsByTimestamp"
ENDING_OFFSETS_BY_TIMESTAMP = "endingOffsetsByTimestamp"
TIMESTAMP_STRATEGY = "startingOffsetsByTimestampStrategy"
MIN_PARTITIONS, MAX_OFFSETS_PER_TRIGGER = "minPartitions", "maxOffsetsPerTrigger"
MIN_OFFSETS_PER_TRIGGER, MAX_TRIGGER_DELAY = "minOffsetsPerTrigger", "maxTriggerDelay"
AVAILABLE_NOW = "availableNow"
FAIL_ON_DATA_LOSS, INCLUDE_HEADERS, SPLIT_BYTES = "failOnDataLoss", "includeHeaders", "splitBytes"
TASK_BYTES = "taskBytes"
FRESHNESS = "freshness"
ISOLATION_LEVEL = "isolation.level"
EXCEPT_OFFSETS = "exceptOffsets"

TOPIC_IDS = "topicIds"

WHICH_TOPICS = (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)
STARTING = (STARTING_OFFSETS, STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP)
ENDING = (ENDING_OFFSETS, ENDING_TIMESTAMP, ENDING_OFFSETS_BY_TIMESTAMP)

_ONE_OF_TOPICS = f"one of {', '.join(WHICH_TOPICS)}"
_TIMESTAMPS_JSON = 'JSON such as {"events":{"0":1700000000000}}, all partitions named'

SOURCE_OPTIONS: tuple[OptionRow, ...] = (
    OptionRow(
        name=SUBSCRIBE,
        legal="names with commas between",
        default=_ONE_OF_TOPICS,
        meaning="The topics, which must exist.",
    ),
    OptionRow(
        name=SUBSCRIBE_PATTERN,
        legal="a regular expression of Python's",
        default=_ONE_OF_TOPICS,
        meaning="The topics whose whole name matches; a stream takes up new ones while it runs.",
    ),
    OptionRow(
        name=ASSIGN,
        legal='JSON such as {"events":[0,1]}',
        default=_ONE_OF_TOPICS,
        meaning="These partitions and no others.",
    ),
    OptionRow(
        name=TOPIC_IDS,
        legal='JSON such as {"events":"b2c1f1e6-7d0c-4b57-9d4f-0a8f6a3c1f10"}',
        default="none: the topics that there are",
        meaning="The ids that topics must have. For another topic of the name a batch fails, and a stream has "
        "lost its topic.",
    ),
    OptionRow(
        name=STARTING_OFFSETS,
        legal='earliest, latest (streaming), or JSON such as {"events":{"0":23,"1":-2}}, all partitions named, '
        "-2 for earliest and -1 for latest (streaming)",
        default="earliest in a batch, latest in a new stream",
        meaning="The first offset of each partition.",
    ),
    OptionRow(
        name=STARTING_TIMESTAMP,
        legal="Unix milliseconds",
        default="none",
        meaning="Start each partition at its first record that is not older.",
    ),
    OptionRow(
        name=STARTING_OFFSETS_BY_TIMESTAMP,
        legal=_TIMESTAMPS_JSON,
        default="none",
        meaning="The same, with a time for each partition.",
    ),
    OptionRow(
        name=TIMESTAMP_STRATEGY,
        legal="error or latest",
        default="error",
        meaning="For a partition without a record as new as the starting time: the query fails, or the "
        "partition starts at its end.",
    ),
    OptionRow(
        name=ENDING_OFFSETS,
        legal='latest, or JSON such as {"events":{"0":50,"1":-1}}, all partitions named, -1 for latest',
        default="latest",
        queries=BATCH,
        meaning="The offset after the last one of each partition.",
    ),
    OptionRow(
        name=ENDING_TIMESTAMP,
        legal="Unix milliseconds",
        default="none",
        queries=BATCH,
        meaning="End each partition before its first record that is not older; at its end where there is none.",
    ),
    OptionRow(
        name=ENDING_OFFSETS_BY_TIMESTAMP,
        legal=_TIMESTAMPS_JSON,
        default="none",
        queries=BATCH,
        meaning="The same, with a time for each partition.",
    ),
    OptionRow(
        name=FRESHNESS,
        legal="published or consolidated",
        default="published",
        meaning="Whether `latest` is all that is published, or what the partitions' records say, which follow at "
        "KAFSCALE_SEAL_INTERVAL_MS of the brokers and cost no reads of journals.",
    ),
    OptionRow(
        name=ISOLATION_LEVEL,
        legal="read_committed or read_uncommitted",
        default="read_committed",
        meaning="read_committed: `latest` is the last stable offset, and records of aborted transactions are left "
        "out. read_uncommitted: all that is published.",
    ),
    OptionRow(
        name=EXCEPT_OFFSETS,
        legal='JSON such as {"events":{"0":[[17,20],[31,32]]}}',
        default="none",
        queries=BATCH,
        meaning="Offsets between start and end that are not read: ranges, without the offset after the last.",
    ),
    OptionRow(
        name=MAX_OFFSETS_PER_TRIGGER,
        legal="a whole number from 1",
        default="no limit",
        queries=STREAMING,
        meaning="How many offsets a micro-batch takes, spread over the partitions in proportion to what waits there.",
    ),
    OptionRow(
        name=MIN_OFFSETS_PER_TRIGGER,
        legal="a whole number from 1",
        default="none",
        queries=STREAMING,
        meaning="A micro-batch waits until there are so many offsets; the first one of a query does not.",
    ),
    OptionRow(
        name=MAX_TRIGGER_DELAY,
        legal="a time such as 500ms, 30s, 15m or 1h",
        default="15m",
        queries=STREAMING,
        meaning="How long after the last micro-batch fewer offsets than minOffsetsPerTrigger are enough.",
    ),
    OptionRow(
        name=AVAILABLE_NOW,
        legal="true or false",
        default="false",
        queries=STREAMING,
        meaning="Whether the stream ends at what there is when the query starts, for run_available_now.",
    ),
    OptionRow(
        name=MIN_PARTITIONS,
        legal="a whole number from 1",
        default="as many as splits",
        meaning="About how many tasks there should be at least: splits are made smaller for it.",
    ),
    OptionRow(
        name=SPLIT_BYTES,
        legal="bytes (or with MB, MiB, ...) from 64KiB",
        default="64MiB",
        meaning="About how many stored bytes one task reads: small segments are read together, large ones divided.",
    ),
    OptionRow(
        name=TASK_BYTES,
        legal="bytes (or with MB, MiB, ...) from 64KiB",
        default="none",
        queries=BATCH,
        meaning="Let one task read small splits of several partitions, up to about so much as stored; a split counts "
        "64 KiB at least. Without it no task reads two partitions' segments.",
    ),
    OptionRow(
        name=FAIL_ON_DATA_LOSS,
        legal="true or false",
        default="true",
        meaning="Whether records that are gone before they were read fail the query; if not, it logs a warning and "
        "goes on with what is there.",
    ),
    OptionRow(
        name=INCLUDE_HEADERS,
        legal="true or false",
        default="true",
        meaning="Whether there is a column `headers` (Spark's Kafka source has none by default).",
    ),
)

REFUSED: dict[str, str] = {
    "kafka.bootstrap.servers": "no broker is asked: name the store with dataDir, or with etcd and bucket",
    "kafka.auto.offset.reset": f"say with {STARTING_OFFSETS} where to start; a stream resumes from its checkpoint",
    "kafka.group.id": "no consumer group takes part: Spark keeps a stream's offsets in its checkpoint",
    "groupIdPrefix": "no consumer group takes part: Spark keeps a stream's offsets in its checkpoint",
    "kafka.isolation.level": f"say it with {ISOLATION_LEVEL}, whose default is read_committed",
    "kafka.key.deserializer": "keys are bytes: use functions of Spark to decode them",
    "kafka.value.deserializer": "values are bytes: use functions of Spark to decode them",
    "kafkaConsumer.pollTimeoutMs": "no Kafka client takes part; the stores' own time limits hold",
    "fetchOffset.numRetries": "no Kafka client takes part; the stores' clients retry by themselves",
    "fetchOffset.retryIntervalMs": "no Kafka client takes part; the stores' clients retry by themselves",
    "maxRecordsPerPartition": f"{SPLIT_BYTES} says how much one task reads",
    "topic": f"say with {SUBSCRIBE} which topics to read; nothing is written with this format",
    "path": f"load() takes no path: say with {SUBSCRIBE} which topics to read",
}
"""Options of Spark's Kafka source without a meaning here, and what to do instead."""

KAFKA_PREFIX = "kafka."
KAFKA_HINT = "options of Kafka's clients mean nothing here, because no Kafka client takes part"
