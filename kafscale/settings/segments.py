"""The settings of a segment's life after its flush: caches, merging, retention, and where reads go first."""

from dataclasses import dataclass

from kafscale.settings.kinds import bucket, client_names, http_url, integer, optional_integer, size, text
from kafscale.settings.rows import INT32_MAX, INT64_MAX, MIB, derived, setting


@dataclass(frozen=True, kw_only=True)
class SegmentSettings:
    """Caching, merging and retention of published segments; a part of `Settings`."""

    cache_size_bytes: int = setting(
        "KAFSCALE_CACHE_SIZE",
        size(0, INT64_MAX),
        "1GB",
        "The memory for segments that were read or written lately; 0 keeps none.",
    )
    index_cache_size_bytes: int = setting(
        "KAFSCALE_INDEX_CACHE_SIZE",
        size(0, INT64_MAX),
        "256MB",
        "The memory for the indexes of segments that are read in parts; 0 keeps none.",
    )
    codec_clients: tuple[str, ...] = setting(
        "KAFSCALE_CODEC_CLIENTS",
        client_names(),
        "",
        "Further clients, by their software's name (`client.software.name`), that read snappy, lz4 and zstd and are "
        "sent batches as they are stored; `*` for all. To clients that do not say that they are one of these, or one "
        "that is known to (docs/compatibility.md), batches are sent decompressed.",
    )
    read_ahead_segments: int = setting(
        "KAFSCALE_READAHEAD_SEGMENTS",
        integer(0, 64),
        "2",
        "How many segments, or chunks of large ones, are read ahead of a consumer that reads from the object store, "
        "and more of small ones; 0 reads none.",
    )
    merge_target_bytes: int = setting(
        "KAFSCALE_MERGE_TARGET_BYTES",
        size(MIB, INT64_MAX, f"; above {INT32_MAX} only with feature level 2 of kafscale.segment.format"),
        "256MiB",
        "Neighbouring segments are merged into segments of up to this size, or of a topic's `segment.bytes` where "
        "that is larger.",
    )
    merge_min_segments: int = setting(
        "KAFSCALE_MERGE_MIN_SEGMENTS",
        integer(2, 1000),
        "10",
        "How many neighbouring segments of about the same size make a merge worth while.",
    )
    merge_check_interval_ms: int = setting(
        "KAFSCALE_MERGE_CHECK_INTERVAL_MS",
        integer(100, INT64_MAX),
        "30000",
        "How often a broker looks for segments to merge in the partitions that it leads.",
    )
    merge_bytes_per_sec: int = setting(
        "KAFSCALE_MERGE_BYTES_PER_SEC",
        size(0, INT64_MAX),
        "32MiB",
        "How much a broker merges per second at most, on average; 0 merges nothing.",
    )
    merge_concurrency: int | None = derived(
        "KAFSCALE_MERGE_CONCURRENCY",
        optional_integer(1, 256),
        "2 in a folder, 16 on a bucket",
        "How many merges may be made at the same time; fewer are while little waits to be merged.",
    )
    compaction_memory_bytes: int = setting(
        "KAFSCALE_COMPACTION_MEMORY",
        size(MIB, 64 * 1024 * MIB),
        "128MiB",
        "The memory for the keys of one compaction, 24 bytes for each: a log with more new keys is compacted in "
        "parts. Taken by a process of its own, only while a partition is compacted.",
    )
    compaction_bytes_per_sec: int = setting(
        "KAFSCALE_COMPACTION_BYTES_PER_SEC",
        size(0, INT64_MAX),
        "32MiB",
        "How much a broker reads per second at most, on average, to compact topics with `compact` in "
        "`cleanup.policy`; 0 compacts nothing.",
    )
    retention_ms: int = setting(
        "KAFSCALE_RETENTION_MS",
        integer(-1, INT64_MAX),
        "604800000",
        "How long records are kept, -1 without limit; a topic's `retention.ms` overrides it.",
    )
    retention_bytes: int = setting(
        "KAFSCALE_RETENTION_BYTES",
        integer(-1, INT64_MAX),
        "-1",
        "How many bytes a partition keeps, -1 for all; a topic's `retention.bytes` overrides it.",
    )
    retention_check_interval_ms: int = setting(
        "KAFSCALE_RETENTION_CHECK_INTERVAL_MS",
        integer(1, INT64_MAX),
        "300000",
        "How often a broker looks for segments to expire in the partitions that it leads.",
    )
    s3_read_bucket: str | None = derived(
        "KAFSCALE_S3_READ_BUCKET",
        bucket(),
        "none",
        "A replica of the bucket, nearer to this broker, from which segments are read first.",
    )
    s3_read_region: str | None = derived(
        "KAFSCALE_S3_READ_REGION", text(64), "KAFSCALE_S3_REGION", "The replica bucket's region."
    )
    s3_read_endpoint: str | None = derived(
        "KAFSCALE_S3_READ_ENDPOINT",
        http_url(),
        "KAFSCALE_S3_ENDPOINT",
        "The URL of the S3-compatible server that holds the replica bucket.",
    )
