"""The settings of consumer groups and their offsets."""

from dataclasses import dataclass

from kafscale.settings.kinds import integer, size
from kafscale.settings.rows import INT32_MAX, INT64_MAX, KIB, MIB, setting


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Limits and times of consumer groups; a part of `Settings`."""

    group_initial_rebalance_delay_ms: int = setting(
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS",
        integer(0, INT32_MAX),
        "3000",
        "How long an empty consumer group waits for further members before its first rebalance.",
    )
    group_min_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "6000",
        "The shortest session timeout that a member of a group may ask for.",
    )
    group_max_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "1800000",
        "The longest session timeout that a member of a group may ask for.",
    )
    group_max_size: int = setting(
        "KAFSCALE_GROUP_MAX_SIZE",
        integer(1, INT32_MAX),
        str(INT32_MAX),
        "The most members that a group may have.",
    )
    group_memory_bytes: int = setting(
        "KAFSCALE_GROUP_MEMORY_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "The memory for the subscriptions and assignments of all groups; a member that would exceed it "
        "cannot join.",
    )
    group_offsets_max_bytes: int = setting(
        "KAFSCALE_GROUP_OFFSETS_MAX_BYTES",
        size(KIB, INT64_MAX),
        "8MiB",
        "What the committed offsets of one group may take in the metadata store; a commit past it is refused.",
    )
    groups_stored_max_bytes: int = setting(
        "KAFSCALE_GROUPS_STORED_MAX_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "What all groups of the cluster may take in the metadata store; past three quarters of it no group and "
        "no offset is added.",
    )
    offsets_retention_minutes: int = setting(
        "KAFSCALE_OFFSETS_RETENTION_MINUTES",
        integer(1, INT32_MAX),
        "10080",
        "How long committed offsets are kept after their group became empty, or after the last commit of a "
        "consumer without a group.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "KAFSCALE_OFFSETS_RETENTION_CHECK_INTERVAL_MS",
        integer(1, INT64_MAX),
        "600000",
        "How often the broker looks for committed offsets that have expired.",
    )
    offsets_commit_timeout_ms: int = setting(
        "KAFSCALE_OFFSETS_COMMIT_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "5000",
        "How long a commit, or a group's new generation, waits for the metadata store before its client gets "
        "an error that makes it try again.",
    )
    offset_metadata_max_bytes: int = setting(
        "KAFSCALE_OFFSET_METADATA_MAX_BYTES",
        integer(0, 8191),
        "4096",
        "The longest text that a client may store with a committed offset, in characters (as in Kafka, "
        "whatever the name says).",
    )
    consumer_lag_max_series: int = setting(
        "KAFSCALE_CONSUMER_LAG_MAX_SERIES",
        integer(0, 100_000),
        "1000",
        "How many partitions of groups have their consumer lag among the metrics; 0 switches it off.",
    )
