"""The types of Kafka's configuration values: how a text is parsed, what is legal, how a value is written."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

ConfigValue = bool | int | float | str | tuple[str, ...]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


class ConfigType(IntEnum):
    """The type numbers of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where a value comes from, by the numbers of DescribeConfigs (KIP-226)."""

    TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKind:
    """A type with its limits. `parse` raises `ValueError`; `legal` says in words what it takes."""

    config_type: ConfigType
    legal: str
    parse: Callable[[str], ConfigValue]


def text_of(value: ConfigValue) -> str:
    """The value as Kafka writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a list value, without blanks around them and without empty ones."""
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


def whole_number(
    config_type: ConfigType, low: int, high: int | None = None, *, also: int | None = None, more: str = ""
) -> ConfigKind:
    """Whole numbers from `low` to `high`, by default the largest of the type, and `also`."""
    limit = (INT_MAX if config_type is ConfigType.INT else LONG_MAX) if high is None else high

    def parse(text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text.strip()):
            raise ValueError(text)
        number = int(text)
        if number != also and not low <= number <= limit:
            raise ValueError(text)
        return number

    alternative = "" if also is None else f", or {also}"
    return ConfigKind(
        config_type=config_type, legal=f"a whole number from {low} to {limit}{alternative}{more}", parse=parse
    )


def fraction() -> ConfigKind:
    """Numbers from 0 to 1."""

    def parse(text: str) -> float:
        number = float(text)
        if not 0 <= number <= 1:
            raise ValueError(text)
        return number

    return ConfigKind(config_type=ConfigType.DOUBLE, legal="a number from 0 to 1", parse=parse)


def boolean(*, only: bool | None = None, more: str = "") -> ConfigKind:
    """`true` and `false` in any case; `only`, when given, is the one that is legal."""

    def parse(text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false") or (only is not None and (word == "true") is not only):
            raise ValueError(text)
        return word == "true"

    legal = "true or false" if only is None else text_of(only)
    return ConfigKind(config_type=ConfigType.BOOLEAN, legal=legal + more, parse=parse)


def one_of(choices: type[StrEnum]) -> ConfigKind:
    """One of the enumeration's values."""

    def parse(text: str) -> str:
        return choices(text.strip())

    return ConfigKind(config_type=ConfigType.STRING, legal=f"one of {', '.join(choices)}", parse=parse)


def list_of(choices: type[StrEnum]) -> ConfigKind:
    """A comma-separated list of the enumeration's values; as in Kafka it may be empty."""

    def parse(text: str) -> tuple[str, ...]:
        return tuple(choices(entry) for entry in split_list(text))

    return ConfigKind(
        config_type=ConfigType.LIST, legal=f"a comma-separated list of {', '.join(choices)}", parse=parse
    )


def throttled_replicas() -> ConfigKind:
    """Kafka's list of throttled replicas: `*`, or partition:broker pairs."""

    def parse(text: str) -> tuple[str, ...]:
        entries = split_list(text)
        for entry in entries if entries != ("*",) else ():
            partition, _, broker = entry.partition(":")
            if not (partition.isdecimal() and broker.isdecimal()):
                raise ValueError(text)
        return entries

    return ConfigKind(
        config_type=ConfigType.LIST,
        legal="* or [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        parse=parse,
    )
