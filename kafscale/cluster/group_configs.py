"""Configs of groups (KIP-848, KIP-932): which there are, what is legal, and what is in effect for a group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from kafscale.cluster.config_description import ConfigEntry, ConfigSynonym
from kafscale.cluster.config_kinds import ConfigSource, ConfigType, whole_number
from kafscale.cluster.view import ClusterView
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings

HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"

_KIND: Final = whole_number(ConfigType.INT, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The configs in effect for a group of the consumer protocol, or for a share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigRow:
    """A config, and the settings that give its default and its bounds."""

    name: str
    setting: str
    low_setting: str
    high_setting: str
    documentation: str


ROWS: Final = (
    GroupConfigRow(
        name=HEARTBEAT_INTERVAL,
        setting="group_consumer_heartbeat_interval_ms",
        low_setting="group_consumer_min_heartbeat_interval_ms",
        high_setting="group_consumer_max_heartbeat_interval_ms",
        documentation="How often members of the group send heartbeats.",
    ),
    GroupConfigRow(
        name=SESSION_TIMEOUT,
        setting="group_consumer_session_timeout_ms",
        low_setting="group_consumer_min_session_timeout_ms",
        high_setting="group_consumer_max_session_timeout_ms",
        documentation="How long a member may be silent before its partitions go to others.",
    ),
    GroupConfigRow(
        name=SHARE_HEARTBEAT_INTERVAL,
        setting="group_share_heartbeat_interval_ms",
        low_setting="group_share_min_heartbeat_interval_ms",
        high_setting="group_share_max_heartbeat_interval_ms",
        documentation="How often members of the share group send heartbeats.",
    ),
    GroupConfigRow(
        name=SHARE_SESSION_TIMEOUT,
        setting="group_share_session_timeout_ms",
        low_setting="group_share_min_session_timeout_ms",
        high_setting="group_share_max_session_timeout_ms",
        documentation="How long a member of the share group may be silent before it is removed.",
    ),
)
"""Ascending by name."""

_ROWS_BY_NAME: Final[Mapping[str, GroupConfigRow]] = {row.name: row for row in ROWS}


class GroupConfigs:
    """The configs in effect for each group, as the view shows them."""

    def __init__(self, view: ClusterView, settings: Settings) -> None:
        self._view = view
        self._settings = settings

    def get(self, group_id: str) -> GroupConfig:
        """The configs that hold now for the group as a consumer group."""
        return self._get(group_id, SESSION_TIMEOUT, HEARTBEAT_INTERVAL)

    def share(self, group_id: str) -> GroupConfig:
        """The configs that hold now for the group as a share group."""
        return self._get(group_id, SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL)

    def _get(self, group_id: str, timeout: str, interval: str) -> GroupConfig:
        configs = self._view.group_configs.get(keys.group_configs(group_id)) or {}
        return GroupConfig(
            session_timeout_ms=_in_effect(_ROWS_BY_NAME[timeout], configs, self._settings),
            heartbeat_interval_ms=_in_effect(_ROWS_BY_NAME[interval], configs, self._settings),
        )


def _in_effect(row: GroupConfigRow, configs: Mapping[str, str], settings: Settings) -> int:
    """A stored value that is legal no more, since a setting changed, is brought between the bounds."""
    default = cast(int, getattr(settings, row.setting))
    try:
        number = cast(int, _KIND.parse(configs.get(row.name, str(default))))
    except ValueError:
        return default
    low, high = _bounds(row, settings)
    return min(max(number, low), high)


def check_group_configs(before: Mapping[str, str], after: Mapping[str, str], settings: Settings) -> None:
    """Check what changes, and the outcome as a whole. Raises `KafkaError` INVALID_CONFIG, in words of Kafka's."""
    for name, text in after.items():
        if before.get(name) == text:
            continue  # A later release may have set it.
        row = _ROWS_BY_NAME.get(name)
        if row is None:
            raise _illegal(f"Unknown group config name: {quoted(name)}")
        number = _number(row, text)
        low, high = _bounds(row, settings)
        if number < low:
            raise _illegal(f"{name} must be greater than or equal to {_bound_name(row, 'min')} ({low})")
        if number > high:
            raise _illegal(f"{name} must be less than or equal to {_bound_name(row, 'max')} ({high})")
    for timeout, interval in (
        (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
        (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
    ):
        timeout_ms = _in_effect(_ROWS_BY_NAME[timeout], after, settings)
        interval_ms = _in_effect(_ROWS_BY_NAME[interval], after, settings)
        if timeout_ms <= interval_ms:
            raise _illegal(f"{timeout} ({timeout_ms}) must be greater than {interval} ({interval_ms})")


def _bounds(row: GroupConfigRow, settings: Settings) -> tuple[int, int]:
    return getattr(settings, row.low_setting), getattr(settings, row.high_setting)


def _bound_name(row: GroupConfigRow, bound: str) -> str:
    """As `group.consumer.min.session.timeout.ms`."""
    protocol, rest = row.name.split(".", 1)
    return f"group.{protocol}.{bound}.{rest}"


def _number(row: GroupConfigRow, text: str) -> int:
    try:
        return cast(int, _KIND.parse(text))
    except ValueError:
        raise _illegal(
            f"Invalid value {quoted(text)} for configuration {row.name}: it must be {_KIND.legal}"
        ) from None


def _illegal(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, problem)


def describe_group(configs: Mapping[str, str], settings: Settings) -> Sequence[ConfigEntry]:
    """Every group config, ascending by name, for a group that sets `configs`."""
    return [_describe(row, configs, settings) for row in ROWS]


def _describe(row: GroupConfigRow, configs: Mapping[str, str], settings: Settings) -> ConfigEntry:
    """As in Kafka, what the broker's setting gives is the default, under the config's own name."""
    source, value = ConfigSource.DEFAULT_CONFIG, str(getattr(settings, row.setting))
    if row.name in configs:
        source, value = ConfigSource.GROUP_CONFIG, configs[row.name]
    return ConfigEntry(
        name=row.name,
        value=value,
        source=source,
        config_type=_KIND.config_type,
        documentation=row.documentation,
        read_only=False,
        synonyms=(ConfigSynonym(name=row.name, value=value, source=source),),
    )
