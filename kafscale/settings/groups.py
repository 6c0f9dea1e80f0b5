"""The settings of consumer groups and their offsets."""

from dataclasses import dataclass
from enum import StrEnum

from kafscale.settings.kinds import choice, choices, integer, size
from kafscale.settings.rows import INT32_MAX, INT64_MAX, KIB, MIB, setting


class ConsumerAssignor(StrEnum):
    """Assignors of the broker, by their names in Kafka (KIP-848)."""

    UNIFORM = "uniform"
    RANGE = "range"


class MigrationPolicy(StrEnum):
    """Groups that may change between the classic and the consumer protocol while they have members."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def has_upgrade(self) -> bool:
        """True if a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def has_downgrade(self) -> bool:
        """True if a consumer group may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


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
    group_consumer_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "45000",
        "How long a member of the consumer protocol may be silent before its partitions go to others, unless its "
        "group has `consumer.session.timeout.ms`.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "45000",
        "The least `consumer.session.timeout.ms` that a group may have.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "60000",
        "The largest `consumer.session.timeout.ms` that a group may have.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "KAFSCALE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS",
        integer(1, INT32_MAX),
        "5000",
        "How often members of the consumer protocol send heartbeats, unless their group has "
        "`consumer.heartbeat.interval.ms`.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "KAFSCALE_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS",
        integer(1, INT32_MAX),
        "5000",
        "The least `consumer.heartbeat.interval.ms` that a group may have.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "KAFSCALE_GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS",
        integer(1, INT32_MAX),
        "15000",
        "The largest `consumer.heartbeat.interval.ms` that a group may have.",
    )
    group_consumer_max_size: int = setting(
        "KAFSCALE_GROUP_CONSUMER_MAX_SIZE",
        integer(1, INT32_MAX),
        str(INT32_MAX),
        "The most members that a group of the consumer protocol may have.",
    )
    group_consumer_assignors: tuple[ConsumerAssignor, ...] = setting(
        "KAFSCALE_GROUP_CONSUMER_ASSIGNORS",
        choices(ConsumerAssignor),
        "uniform,range",
        "How partitions are assigned by the broker: the assignors that members may name, the first for those that "
        "name none.",
    )
    group_consumer_migration_policy: MigrationPolicy = setting(
        "KAFSCALE_GROUP_CONSUMER_MIGRATION_POLICY",
        choice(MigrationPolicy),
        "bidirectional",
        "Which groups change their protocol with their members: `upgrade` from classic to consumer, `downgrade` "
        "back, both or none.",
    )
    group_share_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "45000",
        "How long a member of a share group may be silent before it is removed, unless its group has "
        "`share.session.timeout.ms`.",
    )
    group_share_min_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_MIN_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "45000",
        "The least `share.session.timeout.ms` that a group may have.",
    )
    group_share_max_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_MAX_SESSION_TIMEOUT_MS",
        integer(1, INT32_MAX),
        "60000",
        "The largest `share.session.timeout.ms` that a group may have.",
    )
    group_share_heartbeat_interval_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_HEARTBEAT_INTERVAL_MS",
        integer(1, INT32_MAX),
        "5000",
        "How often members of share groups send heartbeats, unless their group has "
        "`share.heartbeat.interval.ms`.",
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS",
        integer(1, INT32_MAX),
        "5000",
        "The least `share.heartbeat.interval.ms` that a group may have.",
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS",
        integer(1, INT32_MAX),
        "15000",
        "The largest `share.heartbeat.interval.ms` that a group may have.",
    )
    group_share_max_size: int = setting(
        "KAFSCALE_GROUP_SHARE_MAX_SIZE",
        integer(1, 1000),
        "200",
        "The most members that a share group may have.",
    )
    group_share_record_lock_duration_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_RECORD_LOCK_DURATION_MS",
        integer(1000, 3_600_000),
        "30000",
        "How long a member of a share group may keep the records that it has received before others receive them, "
        "unless its group has `share.record.lock.duration.ms`.",
    )
    group_share_min_record_lock_duration_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS",
        integer(1000, 30_000),
        "15000",
        "The least `share.record.lock.duration.ms` that a group may have.",
    )
    group_share_max_record_lock_duration_ms: int = setting(
        "KAFSCALE_GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS",
        integer(30_000, 3_600_000),
        "60000",
        "The largest `share.record.lock.duration.ms` that a group may have.",
    )
    group_share_delivery_count_limit: int = setting(
        "KAFSCALE_GROUP_SHARE_DELIVERY_COUNT_LIMIT",
        integer(2, 10),
        "5",
        "How often a record is delivered to a share group at most; one that comes back from its last delivery is "
        "archived.",
    )
    group_share_partition_max_record_locks: int = setting(
        "KAFSCALE_GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS",
        integer(100, 10_000),
        "2000",
        "The most records of one partition that a share group has in flight: from the first that is not finished to "
        "the last that a member has received.",
    )
    group_share_max_share_sessions: int = setting(
        "KAFSCALE_GROUP_SHARE_MAX_SHARE_SESSIONS",
        integer(1, INT32_MAX),
        "2000",
        "The most share sessions of this broker: one for each member of a share group that fetches from it.",
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
        "What the committed offsets of one group may take in the metadata store; a commit past it is refused. It is "
        "also what a share group may have of its partitions.",
    )
    groups_stored_max_bytes: int = setting(
        "KAFSCALE_GROUPS_STORED_MAX_BYTES",
        size(MIB, INT64_MAX),
        "256MiB",
        "What all groups of the cluster may take in the metadata store; past three quarters of it no group, no "
        "offset, and no partition of a share group is added.",
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
        "How long a commit, a group's new generation, or a member's new assignment waits for the metadata store "
        "before its client gets an error that makes it try again. At most the session timeouts of the consumer "
        "protocol and of share groups: no group should have a shorter one.",
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
        "How many partitions of groups have their consumer lag among the metrics, and how many of share groups "
        "theirs; 0 switches both off.",
    )
