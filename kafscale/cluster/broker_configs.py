"""This broker's settings under the names that Kafka's tools know; all are fixed while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.config_description import ConfigEntry, ConfigSynonym, broker_synonyms
from kafscale.cluster.config_kinds import ConfigSource, ConfigType, text_of
from kafscale.cluster.group_broker_configs import OF_GROUPS, BrokerConfigRow
from kafscale.cluster.topic_config_table import TOPIC_CONFIGS
from kafscale.cluster.topic_configs import default_text
from kafscale.metadata.model import BrokerRecord
from kafscale.settings.broker import Settings, variable_of
from kafscale.settings.kinds import Address
from kafscale.settings.listener_list import listener_specs


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
    *OF_GROUPS,
    BrokerConfigRow(
        "auto.create.topics.enable",
        "auto_create_topics",
        _BOOLEAN,
        "Whether a topic is created when a client that allows it first names it.",
    ),
    BrokerConfigRow("broker.id", "broker_id", _INT, "The broker's id."),
    BrokerConfigRow(
        "connection.failed.authentication.delay.ms",
        "connection_failed_authentication_delay_ms",
        _INT,
        "How long the answer to a failed authentication is delayed.",
    ),
    BrokerConfigRow(
        "connections.max.idle.ms",
        "connections_max_idle_ms",
        _LONG,
        "A connection is closed after this long without a request.",
    ),
    BrokerConfigRow(
        "connections.max.reauth.ms",
        "connections_max_reauth_ms",
        _LONG,
        "After so long a client must authenticate itself again; 0 for no limit.",
    ),
    BrokerConfigRow("fetch.max.bytes", "fetch_max_bytes", _INT, "The most that one fetch returns."),
    BrokerConfigRow(
        "listener.security.protocol.map",
        "listener_security_protocol_map",
        _STRING,
        "The listeners' security protocols.",
    ),
    BrokerConfigRow("listeners", "listeners", ConfigType.LIST, "Where the broker listens."),
    BrokerConfigRow(
        "log.retention.check.interval.ms",
        "retention_check_interval_ms",
        _LONG,
        "How often the broker looks for segments that have expired.",
    ),
    BrokerConfigRow("max.connections", "max_connections", _INT, "How many clients may be connected."),
    BrokerConfigRow(
        "max.connections.per.ip",
        "max_connections_per_ip",
        _INT,
        "How many clients of one address may be connected.",
    ),
    BrokerConfigRow(
        "max.connections.per.ip.overrides",
        "max_connections_per_ip_overrides",
        _STRING,
        "Other limits for some addresses.",
    ),
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
        "quota.window.num",
        "quota_window_num",
        _INT,
        "Over how many windows the rates of client quotas are measured.",
    ),
    BrokerConfigRow(
        "quota.window.size.seconds",
        "quota_window_size_seconds",
        _INT,
        "The time of each window of client quotas.",
    ),
    BrokerConfigRow(
        "sasl.enabled.mechanisms",
        "sasl_enabled_mechanisms",
        ConfigType.LIST,
        "The SASL mechanisms of listeners with SASL.",
    ),
    BrokerConfigRow(
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl_oauthbearer_clock_skew_seconds",
        _INT,
        "How much the clock of a token's issuer may differ.",
    ),
    BrokerConfigRow(
        "sasl.oauthbearer.expected.audience",
        "sasl_oauthbearer_expected_audience",
        ConfigType.LIST,
        "A token must name one of these as its audience; empty for any.",
    ),
    BrokerConfigRow(
        "sasl.oauthbearer.expected.issuer",
        "sasl_oauthbearer_expected_issuer",
        _STRING,
        "A token must have this issuer.",
    ),
    BrokerConfigRow(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl_oauthbearer_jwks_endpoint_refresh_ms",
        _LONG,
        "How often the keys of tokens are read again.",
    ),
    BrokerConfigRow(
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl_oauthbearer_jwks_endpoint_url",
        _STRING,
        "The keys that tokens are signed with.",
    ),
    BrokerConfigRow(
        "sasl.oauthbearer.scope.claim.name",
        "sasl_oauthbearer_scope_claim_name",
        _STRING,
        "The claim of a token with its scopes.",
    ),
    BrokerConfigRow(
        "sasl.oauthbearer.sub.claim.name",
        "sasl_oauthbearer_sub_claim_name",
        _STRING,
        "The claim of a token with the name of its user.",
    ),
    BrokerConfigRow(
        "sasl.server.max.receive.size",
        "sasl_server_max_receive_size",
        _INT,
        "The largest request before authentication.",
    ),
    BrokerConfigRow(
        "socket.request.max.bytes", "frame_max_bytes", _INT, "The largest request that is accepted."
    ),
    BrokerConfigRow(
        "ssl.client.auth", "ssl_client_auth", _STRING, "Whether clients of SSL listeners show a certificate."
    ),
    BrokerConfigRow(
        "ssl.enabled.protocols",
        "ssl_enabled_protocols",
        ConfigType.LIST,
        "The versions of TLS that are served.",
    ),
    BrokerConfigRow(
        "ssl.principal.mapping.rules",
        "ssl_principal_mapping_rules",
        _STRING,
        "How the name in a certificate becomes a principal's.",
    ),
)

FIXED: Final = (
    FixedConfigRow(
        "default.replication.factor", "1", _INT, "One replica, the leader: the object store replicates."
    ),
    FixedConfigRow("delete.topic.enable", "true", _BOOLEAN, "Topics can be deleted."),
    FixedConfigRow("inter.broker.listener.name", "PLAINTEXT", _STRING, "Brokers do not talk to each other."),
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
            f"{listener}://{Address(*endpoint)}" for listener, endpoint in broker.endpoints().items()
        )
        # Of this broker alone: there is no default that it could be compared with.
        synonym = ConfigSynonym(name=_ADVERTISED, value=advertised, source=ConfigSource.STATIC_BROKER_CONFIG)
        documentation = "Where clients connect."
        entries.append(_entry(_ADVERTISED, advertised, _STRING, documentation, (synonym,)))
    return sorted(entries, key=lambda entry: entry.name)


def _from_settings(row: BrokerConfigRow, settings: Settings) -> ConfigEntry:
    value, default = (_text(row, source) for source in (settings, Settings()))
    documentation = f"{row.documentation} Set by {variable_of(row.setting)}."
    is_set = row.setting in settings.named
    if row.setting == "listeners" and settings.listeners is None:
        # One variable for each of two, as they are set without KAFSCALE_LISTENERS.
        documentation = f"{documentation.removesuffix('.')} or {variable_of('broker_addr')}."
        is_set = "broker_addr" in settings.named
    synonyms = broker_synonyms(row.name, value, default, is_set=is_set)
    return _entry(row.name, value, row.config_type, documentation, synonyms)


def _fixed(row: FixedConfigRow) -> tuple[ConfigSynonym, ...]:
    return broker_synonyms(row.name, row.value, row.value, is_set=False)


def _text(row: BrokerConfigRow, settings: Settings) -> str | None:
    specs = listener_specs(settings)
    if row.setting == "listeners":
        return ",".join(f"{spec.name}://{spec.address}" for spec in specs)
    if row.setting == "listener_security_protocol_map":
        return ",".join(f"{spec.name}:{spec.protocol}" for spec in specs)
    value = getattr(settings, row.setting)
    if value is None:
        return None
    return ",".join(map(str, value)) if isinstance(value, tuple) else text_of(value)


def _entry(
    name: str,
    value: str | None,
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
