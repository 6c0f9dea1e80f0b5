"""Configs of groups (KIP-848, KIP-932): which there are, what is legal, and what is in effect for a group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, cast

from kafscale.cluster.config_description import ConfigEntry, ConfigSynonym
from kafscale.cluster.config_kinds import ConfigKind, ConfigSource, ConfigType, one_of, whole_number
from kafscale.cluster.offset_reset import LEGAL, OffsetReset, ResetTo
from kafscale.cluster.view import ClusterView
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings

HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
SHARE_AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_ISOLATION_LEVEL: Final = "share.isolation.level"
SHARE_RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"


class ShareIsolation(StrEnum):
    """The records that a share group receives, as consumers have it by `isolation.level`."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


_NUMBER: Final = whole_number(ConfigType.INT, 1)
_LOCK_DURATION: Final = whole_number(ConfigType.INT, 1000)
_ISOLATION: Final = one_of(ShareIsolation)


def _parse_reset(text: str) -> str:
    OffsetReset.parse(text.strip())
    return text.strip()


_RESET: Final = ConfigKind(config_type=ConfigType.STRING, legal=LEGAL, parse=_parse_reset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The configs in effect for a group of the consumer protocol, or for the members of a share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingConfig:
    """The configs in effect for what a share group reads. `offset_reset`: where it begins with a partition."""

    offset_reset: OffsetReset
    isolation: ShareIsolation
    record_lock_duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRow:
    """A config that is a number, and the settings that give its default and its bounds."""

    name: str
    kind: ConfigKind = _NUMBER
    setting: str
    low_setting: str
    high_setting: str
    documentation: str

    def default_text(self, settings: Settings) -> str:
        """The value of a group that does not set it."""
        return str(getattr(settings, self.setting))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """A config that is a text. The broker has no setting for it, and neither has Kafka's."""

    name: str
    kind: ConfigKind
    default: str
    documentation: str

    def default_text(self, settings: Settings) -> str:
        """The value of a group that does not set it."""
        return self.default


GroupConfigRow = NumberRow | TextRow

ROWS: Final = (
    NumberRow(
        name=HEARTBEAT_INTERVAL,
        setting="group_consumer_heartbeat_interval_ms",
        low_setting="group_consumer_min_heartbeat_interval_ms",
        high_setting="group_consumer_max_heartbeat_interval_ms",
        documentation="How often members of the group send heartbeats.",
    ),
    NumberRow(
        name=SESSION_TIMEOUT,
        setting="group_consumer_session_timeout_ms",
        low_setting="group_consumer_min_session_timeout_ms",
        high_setting="group_consumer_max_session_timeout_ms",
        documentation="How long a member may be silent before its partitions go to others.",
    ),
    TextRow(
        name=SHARE_AUTO_OFFSET_RESET,
        kind=_RESET,
        default=ResetTo.LATEST,
        documentation="Where the group begins with a partition: `earliest`, `latest`, or `by_duration:` and how "
        "far back in time, as ISO 8601 writes durations.",
    ),
    NumberRow(
        name=SHARE_HEARTBEAT_INTERVAL,
        setting="group_share_heartbeat_interval_ms",
        low_setting="group_share_min_heartbeat_interval_ms",
        high_setting="group_share_max_heartbeat_interval_ms",
        documentation="How often members of the share group send heartbeats.",
    ),
    TextRow(
        name=SHARE_ISOLATION_LEVEL,
        kind=_ISOLATION,
        default=ShareIsolation.READ_UNCOMMITTED,
        documentation="Whether the share group receives records of transactions that are open or were aborted.",
    ),
    NumberRow(
        name=SHARE_RECORD_LOCK_DURATION,
        kind=_LOCK_DURATION,
        setting="group_share_record_lock_duration_ms",
        low_setting="group_share_min_record_lock_duration_ms",
        high_setting="group_share_max_record_lock_duration_ms",
        documentation="How long a member may keep the records that it has received before others receive them.",
    ),
    NumberRow(
        name=SHARE_SESSION_TIMEOUT,
        setting="group_share_session_timeout_ms",
        low_setting="group_share_min_session_timeout_ms",
        high_setting="group_share_max_session_timeout_ms",
        documentation="How long a member of the share group may be silent before it is removed.",
    ),
)
"""Ascending by name."""

_ROWS_BY_NAME: Final[Mapping[str, GroupConfigRow]] = {row.name: row for row in ROWS}
_NUMBERS: Final[Mapping[str, NumberRow]] = {row.name: row for row in ROWS if isinstance(row, NumberRow)}
_TEXTS: Final[Mapping[str, TextRow]] = {row.name: row for row in ROWS if isinstance(row, TextRow)}


class _Names(NamedTuple):
    session_timeout: str
    heartbeat_interval: str


_CONSUMER: Final = _Names(SESSION_TIMEOUT, HEARTBEAT_INTERVAL)
_SHARE: Final = _Names(SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL)


class GroupConfigs:
    """The configs in effect for each group, as the view shows them."""

    def __init__(self, view: ClusterView, settings: Settings) -> None:
        self._view = view
        self._settings = settings
        self._sharing_by_default = _sharing({}, settings)
        self._sharing_by_key: dict[str, SharingConfig] = {}
        self._by_default = {names: _numbers({}, names, settings) for names in (_CONSUMER, _SHARE)}
        self._by_key: dict[str, dict[_Names, GroupConfig]] = {}
        view.group_configs.subscribe(self._changed)

    def get(self, group_id: str) -> GroupConfig:
        """The configs that hold now for the group as a consumer group. Cheap: each heartbeat asks."""
        return self._get(group_id, _CONSUMER)

    def share(self, group_id: str) -> GroupConfig:
        """The configs that hold now for the group as a share group. Cheap, too."""
        return self._get(group_id, _SHARE)

    def sharing(self, group_id: str) -> SharingConfig:
        """The configs that hold now for what the share group reads. Cheap: each fetch asks."""
        key = keys.group_configs(group_id)
        known = self._sharing_by_key.get(key)
        if known is not None:
            return known
        configs = self._view.group_configs.get(key)
        if configs is None:
            return self._sharing_by_default
        return self._sharing_by_key.setdefault(key, _sharing(configs, self._settings))

    def _changed(self, key: str) -> None:
        self._sharing_by_key.pop(key, None)
        self._by_key.pop(key, None)

    def _get(self, group_id: str, names: _Names) -> GroupConfig:
        key = keys.group_configs(group_id)
        configs = self._view.group_configs.get(key)
        if configs is None:
            return self._by_default[names]
        known = self._by_key.setdefault(key, {})
        found = known.get(names)
        if found is None:
            found = known[names] = _numbers(configs, names, self._settings)
        return found


def _numbers(configs: Mapping[str, str], names: _Names, settings: Settings) -> GroupConfig:
    return GroupConfig(
        session_timeout_ms=_number_in_effect(names.session_timeout, configs, settings),
        heartbeat_interval_ms=_number_in_effect(names.heartbeat_interval, configs, settings),
    )


def _sharing(configs: Mapping[str, str], settings: Settings) -> SharingConfig:
    return SharingConfig(
        offset_reset=OffsetReset.parse(_text_in_effect(SHARE_AUTO_OFFSET_RESET, configs)),
        isolation=ShareIsolation(_text_in_effect(SHARE_ISOLATION_LEVEL, configs)),
        record_lock_duration_ms=_number_in_effect(SHARE_RECORD_LOCK_DURATION, configs, settings),
    )


def _number_in_effect(name: str, configs: Mapping[str, str], settings: Settings) -> int:
    """A stored value that is legal no more, since a setting changed, is brought between the bounds."""
    row = _NUMBERS[name]
    default = cast(int, getattr(settings, row.setting))
    try:
        number = cast(int, row.kind.parse(configs.get(name, str(default))))
    except ValueError:
        return default
    low, high = _bounds(row, settings)
    return min(max(number, low), high)


def _text_in_effect(name: str, configs: Mapping[str, str]) -> str:
    """A stored value that is not legal, as a later release may write it, is as if it were not there."""
    row = _TEXTS[name]
    try:
        return cast(str, row.kind.parse(configs.get(name, row.default)))
    except ValueError:
        return row.default


def check_group_configs(before: Mapping[str, str], after: Mapping[str, str], settings: Settings) -> None:
    """Check what changes, and the outcome as a whole. Raises `KafkaError` INVALID_CONFIG, in words of Kafka's."""
    for name, text in after.items():
        if before.get(name) == text:
            continue  # A later release may have set it.
        row = _ROWS_BY_NAME.get(name)
        if row is None:
            raise _illegal(f"Unknown group config name: {quoted(name)}")
        try:
            value = row.kind.parse(text)
        except ValueError:
            raise _illegal(
                f"Invalid value {quoted(text)} for configuration {name}: it must be {row.kind.legal}"
            ) from None
        if isinstance(row, TextRow):
            continue
        number = cast(int, value)
        low, high = _bounds(row, settings)
        if number < low:
            raise _illegal(f"{name} must be greater than or equal to {_bound_name(row, 'min')} ({low})")
        if number > high:
            raise _illegal(f"{name} must be less than or equal to {_bound_name(row, 'max')} ({high})")
    for timeout, interval in (
        (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
        (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
    ):
        timeout_ms = _number_in_effect(timeout, after, settings)
        interval_ms = _number_in_effect(interval, after, settings)
        if timeout_ms <= interval_ms:
            raise _illegal(f"{timeout} ({timeout_ms}) must be greater than {interval} ({interval_ms})")


def _bounds(row: NumberRow, settings: Settings) -> tuple[int, int]:
    return getattr(settings, row.low_setting), getattr(settings, row.high_setting)


def _bound_name(row: NumberRow, bound: str) -> str:
    """As `group.consumer.min.session.timeout.ms`."""
    protocol, rest = row.name.split(".", 1)
    return f"group.{protocol}.{bound}.{rest}"


def _illegal(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, problem)


def describe_group(configs: Mapping[str, str], settings: Settings) -> Sequence[ConfigEntry]:
    """Every group config, ascending by name, for a group that sets `configs`."""
    return [_describe(row, configs, settings) for row in ROWS]


def _describe(row: GroupConfigRow, configs: Mapping[str, str], settings: Settings) -> ConfigEntry:
    """As in Kafka, what the broker's setting gives is the default, under the config's own name."""
    source, value = ConfigSource.DEFAULT_CONFIG, row.default_text(settings)
    if row.name in configs:
        source, value = ConfigSource.GROUP_CONFIG, configs[row.name]
    return ConfigEntry(
        name=row.name,
        value=value,
        source=source,
        config_type=row.kind.config_type,
        documentation=row.documentation,
        read_only=False,
        synonyms=(ConfigSynonym(name=row.name, value=value, source=source),),
    )
