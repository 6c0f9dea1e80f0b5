"""The settings of a batch's way into a segment, and of topics that are created."""

from dataclasses import dataclass
from enum import StrEnum

from kafscale.settings.kinds import boolean, choice, integer, optional_integer, size
from kafscale.settings.rows import INT32_MAX, INT64_MAX, KIB, MIB, derived, setting


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
        "A partition's buffer is flushed once it has this much, at the latest at 64 MiB; a topic's "
        "`segment.bytes` overrides it.",
    )
    flush_interval_ms: int = setting(
        "KAFSCALE_FLUSH_INTERVAL_MS",
        integer(0, 3_600_000),
        "500",
        "A broker flushes what waits in all its partitions, with one PUT, once the oldest record has waited this "
        "long; earlier as far as KAFSCALE_FLUSHES_PER_SEC allows.",
    )
    flush_bytes: int = setting(
        "KAFSCALE_FLUSH_BYTES",
        size(64 * KIB, 64 * MIB),
        "8MiB",
        "A broker flushes when so much waits in all its partitions.",
    )
    flushes_per_sec: int | None = derived(
        "KAFSCALE_FLUSHES_PER_SEC",
        optional_integer(0, 1_000_000),
        "4 on a bucket, no limit in a folder",
        "How many flushes a second, on average, may begin before KAFSCALE_FLUSH_INTERVAL_MS is over; what is not "
        "used in ten seconds is saved up. It bounds what PUTs cost, however many partitions are written to.",
    )
    flushes_in_flight: int = setting(
        "KAFSCALE_FLUSHES_IN_FLIGHT",
        integer(1, 64),
        "4",
        "How many flushes may be in flight at the same time; they are acknowledged in their order.",
    )
    seal_interval_ms: int | None = derived(
        "KAFSCALE_SEAL_INTERVAL_MS",
        optional_integer(10, 3_600_000),
        "60000 on a bucket, 5000 in a folder",
        "How often the records of partitions that were written to are brought up to date in the metadata store, and "
        "what has gathered of them in the journal becomes segments: tools see what is published then, and a new "
        "leader has less of the journal to read.",
    )
    seal_max_age_ms: int = setting(
        "KAFSCALE_SEAL_MAX_AGE_MS",
        integer(1000, 7 * 24 * 3_600_000),
        "3600000",
        "Records become a segment of their partition after this time at the latest, however few they are; a mebibyte "
        "does so at once.",
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
