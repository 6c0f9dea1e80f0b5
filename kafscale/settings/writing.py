"""The settings of a batch's way into a segment, and of topics that are created."""

from dataclasses import dataclass
from enum import StrEnum

from kafscale.settings.kinds import boolean, choice, integer, optional_integer, size
from kafscale.settings.rows import INT32_MAX, INT64_MAX, MIB, derived, setting


class CompressionCodec(StrEnum):
    """How batches are stored that their producers did not compress; `producer` leaves every batch as it is."""

    SNAPPY = "snappy"
    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    PRODUCER = "producer"


@dataclass(frozen=True, kw_only=True)
class WritingSettings:
    """How batches are gathered, compressed and flushed, and defaults of topics; a part of `Settings`."""

    segment_bytes: int = setting(
        "KAFSCALE_SEGMENT_BYTES",
        size(
            MIB,
            INT64_MAX,
            f"; above {INT32_MAX} only with feature level 2 of kafscale.segment.format",
        ),
        "4MiB",
        "A partition's buffer is flushed as a segment once it has this much, at the latest at 64 MiB; a topic's "
        "`segment.bytes` overrides it.",
    )
    flush_interval_ms: int = setting(
        "KAFSCALE_FLUSH_INTERVAL_MS",
        integer(0, 3_600_000),
        "500",
        "A partition's buffer is flushed once its oldest record has waited this long, often earlier where records "
        "lie in a folder (KAFSCALE_EARLY_FLUSHES); with 0 it is flushed at once, and while two flushes are in "
        "flight the next gathers.",
    )
    early_flushes: int | None = derived(
        "KAFSCALE_EARLY_FLUSHES",
        optional_integer(0, 1024),
        "2 in a folder, 0 on a bucket",
        "While fewer flushes than this are in flight, a buffer is flushed before its time, as soon as its producers "
        "pause; 0 lets every buffer wait for KAFSCALE_FLUSH_INTERVAL_MS.",
    )
    flush_concurrency: int = setting(
        "KAFSCALE_FLUSH_CONCURRENCY",
        integer(1, 1024),
        "32",
        "How many flushes may be in flight at the same time, at most two of a partition.",
    )
    compression_codec: CompressionCodec = setting(
        "KAFSCALE_COMPRESSION_CODEC",
        choice(CompressionCodec),
        "snappy",
        "How a batch is stored that its producer did not compress; `producer` stores every batch as it came. A batch "
        "that does not get a sixteenth smaller is stored as it came, and so is what follows it in its partition, "
        "untried, up to fifteen times its bytes.",
    )
    auto_create_topics: bool = setting(
        "KAFSCALE_AUTO_CREATE_TOPICS",
        boolean(),
        "true",
        "Whether a topic is created when a client that allows it first names it.",
    )
    auto_create_partitions: int = setting(
        "KAFSCALE_AUTO_CREATE_PARTITIONS",
        integer(1, 10_000),
        "1",
        "The partitions of a topic that is created without a number.",
    )
    max_message_bytes: int = setting(
        "KAFSCALE_MAX_MESSAGE_BYTES",
        size(1, INT32_MAX),
        "1048588",
        "The largest record batch that is accepted; a topic's `max.message.bytes` overrides it.",
    )
