"""Topic configs: the table against Apache Kafka's own, and what a value is taken for."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.config_description import ConfigEntry, describe_topic
from kafscale.cluster.config_kinds import ConfigSource, ConfigType
from kafscale.cluster.iceberg_configs import ICEBERG_CONFIGS
from kafscale.cluster.topic_config_table import (
    ROWS_BY_NAME,
    TOPIC_CONFIGS,
    CleanupPolicy,
    CompressionType,
    MessageTimestampType,
    TopicConfigRow,
)
from kafscale.cluster.topic_configs import canonical_text, default_text, effective, validate
from kafscale.formats.features import LARGE_SEGMENTS_LEVEL, LEGACY_LEVEL
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import CompressionCodec, Settings

KAFKA_TABLE = Path(__file__).parents[1] / "golden" / "topic_configs" / "kafka-4.1.1.tsv"
LARGER_THAN_KAFKAS = {"segment.bytes": ConfigType.LONG}
"""Here 64-bit: segments of more than 2 GiB come with a feature level."""


class KafkaConfig(NamedTuple):
    """A line of Kafka's own table."""

    name: str
    type: str
    default: str
    broker_name: str
    validator: str


KAFKA_CONFIGS = [KafkaConfig(*line.split("\t")) for line in KAFKA_TABLE.read_text().splitlines()]


def refused(name: str, value: str) -> str:
    with pytest.raises(KafkaError) as refusal:
        validate({name: value})
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    return refusal.value.message


def test_the_same_configs_in_the_same_order_as_kafka() -> None:
    names = [row.name for row in TOPIC_CONFIGS]
    kafkas = [name for name in names if not name.startswith("kafscale.")]
    assert kafkas == [config.name for config in KAFKA_CONFIGS]
    assert names == sorted(names)
    assert len(names) == len(kafkas) + len(ICEBERG_CONFIGS)


@pytest.mark.parametrize("config", KAFKA_CONFIGS, ids=lambda config: config.name)
def test_type_default_and_broker_config_are_kafkas(config: KafkaConfig) -> None:
    row = ROWS_BY_NAME[config.name]
    assert row.kind.config_type is LARGER_THAN_KAFKAS.get(config.name, ConfigType[config.type])
    assert row.default == canonical_text(row, row.default) == config.default
    assert (row.broker_name or "null") == config.broker_name


@pytest.mark.parametrize("config", KAFKA_CONFIGS, ids=lambda config: config.name)
def test_the_limits_are_kafkas(config: KafkaConfig) -> None:
    limits = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(\d+))?\](?: or (-?\d+))?", config.validator)
    if limits is not None:
        low, high, also = limits[1], limits[2], limits[3]
        validate({config.name: low})
        refused(config.name, str(int(low) - 1))
        if also is not None:
            validate({config.name: also})
        if high is not None:
            validate({config.name: high})
            refused(config.name, str(int(high) + 1))
        elif config.type == "INT":
            validate({config.name: str(2**31 - 1)})
            refused(config.name, str(2**31))
        else:
            validate({config.name: str(2**63 - 1)})
            refused(config.name, str(2**63))
    elif config.validator.startswith("[") and config.name.endswith(("policy", "type")):
        for choice in config.validator.strip("[]").split(", "):
            validate({config.name: choice})
        refused(config.name, "other")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", ""),
        ("retention.ms", "1_000"),
        ("retention.ms", "1e3"),
        ("retention.ms", "٣"),
        ("retention.ms", "-"),
        ("retention.ms", "9" * 5000),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "half"),
        ("preallocate", "yes"),
        ("cleanup.policy", "delete,keep"),
        ("compression.type", "Snappy"),
        ("leader.replication.throttled.replicas", "1:a"),
        ("remote.storage.enable", "true"),
    ],
)
def test_values_that_are_refused(name: str, value: str) -> None:
    message = refused(name, value)
    assert name in message
    assert ROWS_BY_NAME[name].kind.legal in message


@pytest.mark.parametrize(
    ("name", "value", "canonical"),
    [
        ("retention.ms", " 5 ", "5"),
        ("retention.ms", "+5", "5"),
        ("preallocate", "TRUE", "true"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", " , ", ""),
        ("leader.replication.throttled.replicas", "*", "*"),
        ("leader.replication.throttled.replicas", "0:1,1:2", "0:1,1:2"),
        ("min.cleanable.dirty.ratio", "0.25", "0.25"),
        ("remote.storage.enable", "false", "false"),
    ],
)
def test_values_are_written_as_kafka_writes_them(name: str, value: str, canonical: str) -> None:
    validate({name: value})
    assert canonical_text(ROWS_BY_NAME[name], value) == canonical


@pytest.mark.parametrize("size", [2**31, 2**32 + 5, 2**63 - 1])
def test_large_segments_wait_for_their_feature_level(size: int) -> None:
    validate({"segment.bytes": str(2**31 - 1)}, LEGACY_LEVEL)
    message = refused("segment.bytes", str(size))
    assert str(size) in message
    assert "above 2147483647" in message
    assert (
        "kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature kafscale.segment.format=2"
        in message
    )
    validate({"segment.bytes": str(size)}, LARGE_SEGMENTS_LEVEL)
    assert effective({"segment.bytes": str(size)}, Settings()).segment_bytes == size


def test_segment_sizes_that_no_level_makes_legal() -> None:
    for text in (str(2**20 - 1), "-1", str(2**63), "2GiB", ""):
        with pytest.raises(KafkaError, match="9223372036854775807"):
            validate({"segment.bytes": text}, LARGE_SEGMENTS_LEVEL)


@given(st.integers(2**20, 2**31 - 1), st.sampled_from([LEGACY_LEVEL, LARGE_SEGMENTS_LEVEL]))
def test_sizes_of_32_bit_are_read_as_before(size: int, level: int) -> None:
    configs = {"segment.bytes": str(size)}
    validate(configs, level)
    assert effective(configs, Settings()).segment_bytes == size
    described = entry(configs, Settings(), "segment.bytes")
    assert (described.value, described.config_type) == (str(size), ConfigType.LONG)


def test_an_unknown_key_is_refused() -> None:
    assert refused("retention.hours", "1") == "Unknown topic config name: retention.hours"


def test_compaction_lags_that_contradict_each_other() -> None:
    validate({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms \(6\) > max\.compaction\.lag\.ms \(5\)"):
        validate({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


@given(st.sampled_from(TOPIC_CONFIGS), st.text())
def test_any_text_is_either_legal_or_refused_by_name(row: TopicConfigRow, text: str) -> None:
    try:
        validate({row.name: text})
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_CONFIG
        assert row.name in error.message
    else:
        assert canonical_text(row, canonical_text(row, text)) == canonical_text(row, text)


def test_what_is_in_effect() -> None:
    settings = Settings(compression_codec=CompressionCodec.NONE, max_message_bytes=5000, segment_bytes=2**21)
    config = effective({}, settings)
    assert config.compression_type is CompressionType.UNCOMPRESSED
    assert (config.max_message_bytes, config.segment_bytes) == (5000, 2**21)
    assert config.message_timestamp_type is MessageTimestampType.CREATE_TIME
    assert config.message_timestamp_after_max_ms == 3_600_000
    assert (config.retention_ms, config.retention_bytes) == (604_800_000, -1)
    assert config.cleanup_policy == (CleanupPolicy.DELETE,)
    config = effective(
        {
            "compression.type": "gzip",
            "max.message.bytes": "7",
            "segment.bytes": "1048576",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.after.max.ms": "2",
            "retention.ms": "-1",
            "retention.bytes": "9",
            "cleanup.policy": "compact,delete",
        },
        settings,
    )
    assert config.compression_type is CompressionType.GZIP
    assert (config.max_message_bytes, config.segment_bytes) == (7, 1048576)
    assert config.message_timestamp_type is MessageTimestampType.LOG_APPEND_TIME
    assert config.message_timestamp_after_max_ms == 2
    assert (config.retention_ms, config.retention_bytes) == (-1, 9)
    assert config.cleanup_policy == (CleanupPolicy.COMPACT, CleanupPolicy.DELETE)


@pytest.mark.parametrize(
    ("configs", "level"),
    [
        ({"compression.type": "gzip"}, -1),
        ({"compression.type": "lz4"}, 9),
        ({"compression.type": "zstd"}, 3),
        ({"compression.type": "snappy"}, None),
        ({"compression.type": "producer"}, None),
        ({"compression.type": "uncompressed"}, None),
        ({"compression.zstd.level": "-131072"}, -131072),  # the type is the setting's
        ({"compression.type": "lz4", "compression.lz4.level": "17", "compression.zstd.level": "22"}, 17),
        ({"compression.type": "gzip", "compression.gzip.level": "1"}, 1),
    ],
)
def test_the_level_is_that_of_the_codec_in_effect(configs: dict[str, str], level: int | None) -> None:
    settings = Settings(compression_codec=CompressionCodec.ZSTD)
    assert effective(configs, settings).compression_level == level


@pytest.mark.parametrize("codec", CompressionCodec)
def test_every_setting_gives_a_legal_default(codec: CompressionCodec) -> None:
    settings = Settings(compression_codec=codec)
    validate({row.name: default_text(row, settings) for row in TOPIC_CONFIGS})


def entry(configs: dict[str, str], settings: Settings, name: str) -> ConfigEntry:
    return next(entry for entry in describe_topic(configs, settings) if entry.name == name)


def sources(entry: ConfigEntry) -> list[tuple[str, str | None, ConfigSource]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def test_where_a_value_comes_from() -> None:
    settings = Settings(max_message_bytes=5000)
    own = entry({"max.message.bytes": "7"}, settings, "max.message.bytes")
    assert (own.value, own.source) == ("7", ConfigSource.TOPIC_CONFIG)
    assert sources(own) == [
        ("max.message.bytes", "7", ConfigSource.TOPIC_CONFIG),
        ("message.max.bytes", "5000", ConfigSource.STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    ]
    inherited = entry({}, settings, "max.message.bytes")
    assert (inherited.value, inherited.source) == ("5000", ConfigSource.STATIC_BROKER_CONFIG)
    default = entry({}, Settings(), "max.message.bytes")
    assert (default.value, default.source) == ("1048588", ConfigSource.DEFAULT_CONFIG)
    without_broker_config = entry({}, settings, "remote.storage.enable")
    assert without_broker_config.source is ConfigSource.DEFAULT_CONFIG
    assert without_broker_config.synonyms == ()
