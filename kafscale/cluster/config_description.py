"""Topic and broker configs as DescribeConfigs returns them: value, source, synonyms, type, documentation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafscale.cluster.config_kinds import ConfigSource, ConfigType
from kafscale.cluster.topic_config_table import TOPIC_CONFIGS, TopicConfigRow
from kafscale.cluster.topic_configs import canonical_text, default_text
from kafscale.settings.broker import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """One of the places that a value may come from; the first one that is set wins."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config with its value in effect. `synonyms` start with the place that gave it."""

    name: str
    value: str | None
    source: ConfigSource
    config_type: ConfigType
    documentation: str
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


def describe_topic(configs: Mapping[str, str], settings: Settings) -> Sequence[ConfigEntry]:
    """Every topic config, ascending by name, for a topic that sets `configs`."""
    return [_describe(row, configs, settings) for row in TOPIC_CONFIGS]


def broker_synonyms(
    name: str, value: str | None, default: str | None, *, is_set: bool
) -> tuple[ConfigSynonym, ...]:
    """Where a broker config may come from: a setting, and the default.

    As in Kafka what is set counts as set with the default's value, too; `is_set` False: unless it differs.
    """
    defaults = ConfigSynonym(name=name, value=default, source=ConfigSource.DEFAULT_CONFIG)
    if value == default and not is_set:
        return (defaults,)
    return ConfigSynonym(name=name, value=value, source=ConfigSource.STATIC_BROKER_CONFIG), defaults


def _describe(row: TopicConfigRow, configs: Mapping[str, str], settings: Settings) -> ConfigEntry:
    inherited = canonical_text(row, default_text(row, settings))
    value = inherited if row.name not in configs else canonical_text(row, configs[row.name])
    synonyms: tuple[ConfigSynonym, ...] = ()
    if row.name in configs:
        synonyms = (ConfigSynonym(name=row.name, value=value, source=ConfigSource.TOPIC_CONFIG),)
    if row.broker_name is not None:
        default = canonical_text(row, default_text(row, Settings()))
        synonyms += broker_synonyms(row.broker_name, inherited, default, is_set=row.setting in settings.named)
    return ConfigEntry(
        name=row.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        config_type=row.kind.config_type,
        documentation=row.documentation,
        read_only=False,
        synonyms=synonyms,
    )
