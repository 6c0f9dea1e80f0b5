"""This broker's settings under the names that Kafka's tools know; all are fixed while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.config_description import ConfigEntry, ConfigSynonym, broker_synonyms
from kafscale.cluster.config_kinds import ConfigSource, ConfigType, text_of
from kafscale.cluster.topic_config_table import TOPIC_CONFIGS
from kafscale.cluster.topic_configs import default_text
from kafscale.metadata.model import BrokerRecord, ListenerName
from kafscale.settings.broker import Settings, variable_of
from kafscale.settings.kinds import Address


@dataclass(frozen=True, slots=True)
class BrokerConfigRow:
    """A broker config and the field of `Settings` behind it."""

    name: str
    setting: str
    config_type: ConfigType
    documentation: str


@dataclass(frozen=True, slots=True)
class FixedConfigRow:
    """A broker config whose value follows from how this broker works."""

    name: str
    value: str
    config_type: ConfigType
    documentation: str


_ADVERTISED: Final = "advertised.listeners"
_INT, _LONG, _BOOLEAN, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.STRING

FROM_SETTINGS: Final = (
    BrokerConfigRow(
        "auto.create.topics.enable",
        "auto_create_topics",
        _BOOLEAN,
        "Whether a topic is created when a client that allows it first names it.",
    ),
    BrokerConfigRow("broker.id", "broker_id", _INT, "The broker's id."),
    BrokerConfigRow(
        "connections.max.idle.ms",
        "connections_max_idle_ms",
        _LONG,
        "A connection is closed after this long without a request.",
    ),
    BrokerConfigRow("fetch.max.bytes", "fetch_max_bytes", _INT, "The most that one fetch returns."),
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
    BrokerConfigRow("listeners", "broker_addr", ConfigType.LIST, "Where the broker listens."),
    BrokerConfigRow(
        "log.retention.check.interval.ms",
        "retention_check_interval_ms",
        _LONG,
        "How often the broker looks for segments that have expired.",
    ),
    BrokerConfigRow("max.connections", "max_connections", _INT, "How many clients may be connected."),
    BrokerConfigRow("node.id", "broker_id", _INT, "The broker's id."),
    BrokerConfigRow(
        "num.partitions",
        "auto_create_partitions",
        _INT,
        "The partitions of a topic that is created without a number.",
    ),
    BrokerConfigRow(
        "offset.metadata.max.bytes",
        "offset_metadata_max_bytes",
        _INT,
        "The longest text that a client may store with a committed offset.",
    ),
    BrokerConfigRow(
        "offsets.commit.timeout.ms",
        "offsets_commit_timeout_ms",
        _INT,
        "How long a commit waits for the metadata store.",
    ),
    BrokerConfigRow(
        "offsets.retention.check.interval.ms",
        "offsets_retention_check_interval_ms",
        _LONG,
        "How often the broker looks for committed offsets that have expired.",
    ),
    BrokerConfigRow(
        "offsets.retention.minutes",
        "offsets_retention_minutes",
        _INT,
        "How long committed offsets are kept after their group became empty.",
    ),
    BrokerConfigRow(
        "socket.request.max.bytes", "frame_max_bytes", _INT, "The largest request that is accepted."
    ),
)

FIXED: Final = (
    FixedConfigRow(
        "default.replication.factor", "1", _INT, "One replica, the leader: the object store replicates."
    ),
    FixedConfigRow("delete.topic.enable", "true", _BOOLEAN, "Topics can be deleted."),
    FixedConfigRow("inter.broker.listener.name", "PLAINTEXT", _STRING, "Brokers do not talk to each other."),
    FixedConfigRow(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
        _STRING,
        "The listeners' protocols.",
    ),
)


def describe_broker(settings: Settings, broker: BrokerRecord | None) -> Sequence[ConfigEntry]:
    """Every broker config, ascending by name. `broker`: as registered, which gives the advertised address."""
    entries = [_from_settings(row, settings) for row in FROM_SETTINGS]
    entries += [_entry(row.name, row.value, row.config_type, row.documentation, _fixed(row)) for row in FIXED]
    for topic_row in TOPIC_CONFIGS:
        if topic_row.broker_name is not None:
            value, default = (default_text(topic_row, source) for source in (settings, Settings()))
            is_set = topic_row.setting in settings.named
            synonyms = broker_synonyms(topic_row.broker_name, value, default, is_set=is_set)
            kind = topic_row.kind.config_type
            entries.append(_entry(topic_row.broker_name, value, kind, topic_row.documentation, synonyms))
    if broker is not None:
        advertised = ",".join(
            f"{listener}://{Address(*endpoint)}"
            for listener in ListenerName
            if (endpoint := broker.endpoint(listener)) is not None
        )
        # Of this broker alone: there is no default that it could be compared with.
        synonym = ConfigSynonym(name=_ADVERTISED, value=advertised, source=ConfigSource.STATIC_BROKER_CONFIG)
        documentation = "Where clients connect."
        entries.append(_entry(_ADVERTISED, advertised, _STRING, documentation, (synonym,)))
    return sorted(entries, key=lambda entry: entry.name)


def _from_settings(row: BrokerConfigRow, settings: Settings) -> ConfigEntry:
    value, default = (_text(row, source) for source in (settings, Settings()))
    documentation = f"{row.documentation} Set by {variable_of(row.setting)}."
    synonyms = broker_synonyms(row.name, value, default, is_set=row.setting in settings.named)
    return _entry(row.name, value, row.config_type, documentation, synonyms)


def _fixed(row: FixedConfigRow) -> tuple[ConfigSynonym, ...]:
    return broker_synonyms(row.name, row.value, row.value, is_set=False)


def _text(row: BrokerConfigRow, settings: Settings) -> str:
    value = getattr(settings, row.setting)
    if row.config_type is not ConfigType.LIST:
        return text_of(value)
    outside = f",{ListenerName.EXTERNAL}://{settings.external_addr}" if settings.external_addr else ""
    return f"{ListenerName.PLAINTEXT}://{value}{outside}"


def _entry(
    name: str,
    value: str,
    config_type: ConfigType,
    documentation: str,
    synonyms: tuple[ConfigSynonym, ...],
) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=value,
        source=synonyms[0].source,
        config_type=config_type,
        documentation=documentation,
        read_only=True,
        synonyms=synonyms,
    )
