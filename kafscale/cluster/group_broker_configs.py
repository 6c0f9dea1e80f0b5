"""The broker configs of groups: rows of the table of `broker_configs`."""

from dataclasses import dataclass
from typing import Final

from kafscale.cluster.config_kinds import ConfigType


@dataclass(frozen=True, slots=True)
class BrokerConfigRow:
    """A broker config and the field of `Settings` behind it."""

    name: str
    setting: str
    config_type: ConfigType
    documentation: str


_INT: Final = ConfigType.INT

OF_GROUPS: Final = (
    BrokerConfigRow(
        "group.consumer.assignors",
        "group_consumer_assignors",
        ConfigType.LIST,
        "The assignors that members of the consumer protocol may name; the first one for those that name none.",
    ),
    BrokerConfigRow(
        "group.consumer.heartbeat.interval.ms",
        "group_consumer_heartbeat_interval_ms",
        _INT,
        "How often members of the consumer protocol send heartbeats.",
    ),
    BrokerConfigRow(
        "group.consumer.max.heartbeat.interval.ms",
        "group_consumer_max_heartbeat_interval_ms",
        _INT,
        "The largest heartbeat interval that a group may have.",
    ),
    BrokerConfigRow(
        "group.consumer.max.session.timeout.ms",
        "group_consumer_max_session_timeout_ms",
        _INT,
        "The longest session timeout that a group of the consumer protocol may have.",
    ),
    BrokerConfigRow(
        "group.consumer.max.size",
        "group_consumer_max_size",
        _INT,
        "The most members that a group of the consumer protocol may have.",
    ),
    BrokerConfigRow(
        "group.consumer.migration.policy",
        "group_consumer_migration_policy",
        ConfigType.STRING,
        "Which groups change between the classic and the consumer protocol with their members.",
    ),
    BrokerConfigRow(
        "group.consumer.min.heartbeat.interval.ms",
        "group_consumer_min_heartbeat_interval_ms",
        _INT,
        "The least heartbeat interval that a group may have.",
    ),
    BrokerConfigRow(
        "group.consumer.min.session.timeout.ms",
        "group_consumer_min_session_timeout_ms",
        _INT,
        "The shortest session timeout that a group of the consumer protocol may have.",
    ),
    BrokerConfigRow(
        "group.consumer.session.timeout.ms",
        "group_consumer_session_timeout_ms",
        _INT,
        "How long a member of the consumer protocol may be silent before its partitions go to others.",
    ),
    BrokerConfigRow(
        "group.initial.rebalance.delay.ms",
        "group_initial_rebalance_delay_ms",
        _INT,
        "How long an empty group waits for further members before its first rebalance.",
    ),
    BrokerConfigRow(
        "group.max.session.timeout.ms",
        "group_max_session_timeout_ms",
        _INT,
        "The longest session timeout that a member may ask for.",
    ),
    BrokerConfigRow("group.max.size", "group_max_size", _INT, "The most members that a group may have."),
    BrokerConfigRow(
        "group.min.session.timeout.ms",
        "group_min_session_timeout_ms",
        _INT,
        "The shortest session timeout that a member may ask for.",
    ),
    BrokerConfigRow(
        "group.share.delivery.count.limit",
        "group_share_delivery_count_limit",
        _INT,
        "How often a record is delivered to a share group at most.",
    ),
    BrokerConfigRow(
        "group.share.heartbeat.interval.ms",
        "group_share_heartbeat_interval_ms",
        _INT,
        "How often members of share groups send heartbeats.",
    ),
    BrokerConfigRow(
        "group.share.max.heartbeat.interval.ms",
        "group_share_max_heartbeat_interval_ms",
        _INT,
        "The largest heartbeat interval that a share group may have.",
    ),
    BrokerConfigRow(
        "group.share.max.record.lock.duration.ms",
        "group_share_max_record_lock_duration_ms",
        _INT,
        "The longest lock of records that a share group may have.",
    ),
    BrokerConfigRow(
        "group.share.max.session.timeout.ms",
        "group_share_max_session_timeout_ms",
        _INT,
        "The longest session timeout that a share group may have.",
    ),
    BrokerConfigRow(
        "group.share.max.share.sessions",
        "group_share_max_share_sessions",
        _INT,
        "The most share sessions of a broker.",
    ),
    BrokerConfigRow(
        "group.share.max.size",
        "group_share_max_size",
        _INT,
        "The most members that a share group may have.",
    ),
    BrokerConfigRow(
        "group.share.min.heartbeat.interval.ms",
        "group_share_min_heartbeat_interval_ms",
        _INT,
        "The least heartbeat interval that a share group may have.",
    ),
    BrokerConfigRow(
        "group.share.min.record.lock.duration.ms",
        "group_share_min_record_lock_duration_ms",
        _INT,
        "The shortest lock of records that a share group may have.",
    ),
    BrokerConfigRow(
        "group.share.min.session.timeout.ms",
        "group_share_min_session_timeout_ms",
        _INT,
        "The shortest session timeout that a share group may have.",
    ),
    BrokerConfigRow(
        "group.share.partition.max.record.locks",
        "group_share_partition_max_record_locks",
        _INT,
        "The most records of one partition that a share group has in flight.",
    ),
    BrokerConfigRow(
        "group.share.record.lock.duration.ms",
        "group_share_record_lock_duration_ms",
        _INT,
        "How long members of share groups may keep the records that they have received.",
    ),
    BrokerConfigRow(
        "group.share.session.timeout.ms",
        "group_share_session_timeout_ms",
        _INT,
        "How long a member of a share group may be silent before it is removed.",
    ),
)
