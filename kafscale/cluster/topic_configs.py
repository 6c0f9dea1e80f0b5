"""A topic's configs: their validation, and what is in effect, by `topic_config_table` and the broker's settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from kafscale.cluster.config_kinds import ConfigValue, text_of
from kafscale.cluster.topic_config_table import (
    ROWS_BY_NAME,
    CleanupPolicy,
    CompressionType,
    MessageTimestampType,
    TopicConfigRow,
)
from kafscale.formats.features import (
    FINALIZE_COMMAND,
    LARGE_SEGMENTS_LEVEL,
    LEGACY_LEVEL,
    MAX_LEGACY_SEGMENT_BYTES,
    SEGMENT_FORMAT,
)
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import CompressionCodec, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's configs in effect, parsed: what the topic sets, else what the broker's settings give.

    `compression_level` is that of the codec of `compression_type`, None for one without levels.
    """

    max_message_bytes: int
    compression_type: CompressionType
    compression_level: int | None
    message_timestamp_type: MessageTimestampType
    message_timestamp_after_max_ms: int
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    cleanup_policy: tuple[CleanupPolicy, ...]
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int


_LEVEL_OF_TYPE: Final[Mapping[CompressionType, str]] = {
    CompressionType.GZIP: "compression.gzip.level",
    CompressionType.LZ4: "compression.lz4.level",
    CompressionType.ZSTD: "compression.zstd.level",
}


def validate(configs: Mapping[str, str], segment_format: int = LEGACY_LEVEL) -> None:
    """Check a topic's own configs as a whole, where `segment_format` is the finalized level of that feature.

    Raises `KafkaError` INVALID_CONFIG with a message that names the key, the value and what is legal.
    """
    parsed = {name: _parse(name, text) for name, text in configs.items()}
    segment_bytes = cast(int, parsed.get("segment.bytes", 0))
    if segment_bytes > MAX_LEGACY_SEGMENT_BYTES and segment_format < LARGE_SEGMENTS_LEVEL:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {segment_bytes} for configuration segment.bytes: above {MAX_LEGACY_SEGMENT_BYTES} it "
            f"needs feature level {LARGE_SEGMENTS_LEVEL} of {SEGMENT_FORMAT}, and the cluster has level "
            f"{segment_format}; finalize it first with `{FINALIZE_COMMAND}`",
        )
    low_name, high_name = "min.compaction.lag.ms", "max.compaction.lag.ms"
    low, high = (parsed.get(name, _parse(name, ROWS_BY_NAME[name].default)) for name in (low_name, high_name))
    if cast(int, low) > cast(int, high):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting {low_name} ({low}) > {high_name} ({high})",
        )


def default_text(row: TopicConfigRow, settings: Settings) -> str:
    """The value in effect for a topic that does not set the config."""
    if row.setting is None:
        return row.default
    value = getattr(settings, row.setting)
    if value is CompressionCodec.NONE:
        return CompressionType.UNCOMPRESSED.value
    return str(value)


def canonical_text(row: TopicConfigRow, text: str) -> str:
    """A legal value as Kafka writes it. Raises `KafkaError` INVALID_CONFIG for one that is not legal."""
    return text_of(_parse(row.name, text))


def effective(configs: Mapping[str, str], settings: Settings) -> TopicConfig:
    """The configs in effect for a topic with these of its own. Raises `KafkaError` INVALID_CONFIG."""

    def value(name: str) -> ConfigValue:
        text = configs.get(name)
        return _parse(name, default_text(ROWS_BY_NAME[name], settings) if text is None else text)

    def number(name: str) -> int:
        return cast(int, value(name))

    compression_type = cast(CompressionType, value("compression.type"))
    level_name = _LEVEL_OF_TYPE.get(compression_type)
    return TopicConfig(
        max_message_bytes=number("max.message.bytes"),
        compression_type=compression_type,
        compression_level=None if level_name is None else number(level_name),
        message_timestamp_type=cast(MessageTimestampType, value("message.timestamp.type")),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        segment_bytes=number("segment.bytes"),
        cleanup_policy=cast(tuple[CleanupPolicy, ...], value("cleanup.policy")),
        min_cleanable_dirty_ratio=cast(float, value("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        delete_retention_ms=number("delete.retention.ms"),
    )


def is_legal(name: str, text: str) -> bool:
    """True if there is such a config, and it may have this value by itself."""
    try:
        _parse(name, text)
    except KafkaError:
        return False
    return True


def _parse(name: str, text: str) -> ConfigValue:
    row = ROWS_BY_NAME.get(name)
    if row is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {quoted(name)}")
    try:
        return row.kind.parse(text)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value '{quoted(text)}' for configuration {name}: it must be {row.kind.legal}",
        ) from None
