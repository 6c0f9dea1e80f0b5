"""The topic configs `kafscale.iceberg.*`: which topics an export of the lake brings into tables, and how.

Brokers only check and keep them. Exports with `--topics-by-config` follow them: a config that a topic sets stands
above the export's own option, and an empty one is the same as none. They describe a topic's table; where the
catalog and the bucket are, and with whose credentials, stays with the export.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.cluster.config_kinds import ConfigKind, ConfigType, boolean, text_of
from kafscale.cluster.layout_syntax import LEGAL_TERMS, split_terms, term_parts, without_order

PREFIX: Final = "kafscale.iceberg."
ENABLE: Final = f"{PREFIX}enable"
TABLE: Final = f"{PREFIX}table"
VALUE_FORMAT: Final = f"{PREFIX}value.format"
KEY_FORMAT: Final = f"{PREFIX}key.format"
SCHEMA: Final = f"{PREFIX}schema"
MESSAGE: Final = f"{PREFIX}message"
PARTITION_BY: Final = f"{PREFIX}partition.by"
SORT_BY: Final = f"{PREFIX}sort.by"
STARTING_OFFSETS: Final = f"{PREFIX}starting.offsets"
ON_EXPIRED: Final = f"{PREFIX}on.expired"

MAX_SCHEMA_CHARACTERS: Final = 16_384
MAX_LAYOUT_CHARACTERS: Final = 1024
MAX_NAME_CHARACTERS: Final = 255

_TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_MESSAGE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


class IcebergValueFormat(StrEnum):
    """The formats of values that an export may be asked for; without Spark it knows fewer."""

    BYTES = "bytes"
    STRING = "string"
    JSON = "json"
    JSON_VARIANT = "json-variant"
    AVRO = "avro"
    PROTOBUF = "protobuf"


WITHOUT_SPARK: Final = (IcebergValueFormat.BYTES, IcebergValueFormat.STRING)
"""The formats that every export decodes."""


class IcebergKeyFormat(StrEnum):
    """The formats of keys."""

    BYTES = "bytes"
    STRING = "string"


class StartingOffsets(StrEnum):
    """Where the export of a topic begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class OnExpired(StrEnum):
    """The ways to go on after records that expired first."""

    FAIL = "fail"
    RECORD = "record"


class TransactionMode(StrEnum):
    """The transactions that a commit of an export has. It is of all its topics, so no topic has a config for it."""

    COMMITTED = "committed"
    ATOMIC = "atomic"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergRow:
    """One of these configs."""

    name: str
    kind: ConfigKind
    default: str = ""
    documentation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergConfig:
    """A topic's wishes for its export. None: none, and the export's own option counts.

    `table`: a name, perhaps after a namespace, without the catalog.
    """

    table: str | None = None
    value_format: str | None = None
    key_format: str | None = None
    schema: str | None = None
    message: str | None = None
    partition_by: tuple[str, ...] | None = None
    sort_by: tuple[str, ...] | None = None
    starting_offsets: str | None = None
    on_expired: str | None = None


def is_switched_on(configs: Mapping[str, str]) -> bool:
    """True if a topic with these configs of its own is to be exported."""
    return configs.get(ENABLE, "false").strip().lower() == "true"


def iceberg_config(configs: Mapping[str, str]) -> IcebergConfig:
    """The wishes of a topic with these configs. Raises `ValueError`, which names config, value, what is legal.

    Brokers refuse what is not legal, but another version's may have been asked.
    """
    found: dict[str, str] = {}
    for row in ICEBERG_CONFIGS:
        text = configs.get(row.name, "")
        try:
            found[row.name] = text_of(row.kind.parse(text)) if text else ""
        except ValueError:
            raise ValueError(
                f"topic config {row.name}={text[:200]!r} is not legal: it must be {row.kind.legal}"
            ) from None
    return IcebergConfig(
        table=found[TABLE] or None,
        value_format=found[VALUE_FORMAT] or None,
        key_format=found[KEY_FORMAT] or None,
        schema=found[SCHEMA] or None,
        message=found[MESSAGE] or None,
        partition_by=tuple(split_terms(found[PARTITION_BY])) or None,
        sort_by=tuple(split_terms(found[SORT_BY])) or None,
        starting_offsets=found[STARTING_OFFSETS] or None,
        on_expired=found[ON_EXPIRED] or None,
    )


def _text(legal: str, is_legal: Callable[[str], bool]) -> ConfigKind:
    """Text that is empty or passes a check."""

    def parse(text: str) -> str:
        stripped = text.strip()
        if stripped and not is_legal(stripped):
            raise ValueError(text)
        return stripped

    return ConfigKind(config_type=ConfigType.STRING, legal=f"{legal}, or empty", parse=parse)


def _choice(choices: type[StrEnum]) -> ConfigKind:
    return _text(f"one of {', '.join(choices)}", lambda text: text in set(choices))


def _name(legal: str, pattern: re.Pattern[str]) -> ConfigKind:
    return _text(
        f"{legal}, of at most {MAX_NAME_CHARACTERS} characters",
        lambda text: len(text) <= MAX_NAME_CHARACTERS and pattern.fullmatch(text) is not None,
    )


def _layout(legal: str, of_term: Callable[[str], str]) -> ConfigKind:
    def parse(text: str) -> str:
        terms = split_terms(text) if len(text) <= MAX_LAYOUT_CHARACTERS else [""]
        if any(term_parts(of_term(term)) is None for term in terms):
            raise ValueError(text)
        return ", ".join(terms)

    return ConfigKind(
        config_type=ConfigType.STRING,
        legal=f"{legal}, of at most {MAX_LAYOUT_CHARACTERS} characters, or empty",
        parse=parse,
    )


ICEBERG_CONFIGS: Final[tuple[IcebergRow, ...]] = (
    IcebergRow(
        name=ENABLE,
        kind=boolean(),
        default="false",
        documentation="Exports with `--topics-by-config` bring the topic into an Iceberg table.",
    ),
    IcebergRow(
        name=KEY_FORMAT,
        kind=_choice(IcebergKeyFormat),
        documentation="The format of keys, instead of the export's `--key-format`.",
    ),
    IcebergRow(
        name=MESSAGE,
        kind=_name("the full name of a Protobuf message, such as shop.v1.Order", _MESSAGE_NAME),
        documentation="For Protobuf: the message of the values, instead of the export's `--message`.",
    ),
    IcebergRow(
        name=ON_EXPIRED,
        kind=_choice(OnExpired),
        documentation="What the export does if records expired before it came, instead of its `--on-expired`.",
    ),
    IcebergRow(
        name=PARTITION_BY,
        kind=_layout(f"terms separated by commas, each {LEGAL_TERMS}", lambda term: term),
        documentation="How a new table is partitioned, such as `days(timestamp)`, instead of the export's "
        "`--partition-by`.",
    ),
    IcebergRow(
        name=SCHEMA,
        kind=_text(
            f"a schema of at most {MAX_SCHEMA_CHARACTERS} characters",
            lambda text: len(text) <= MAX_SCHEMA_CHARACTERS,
        ),
        documentation="For JSON the value's columns, for Avro the schema, as text, instead of the export's "
        "`--schema` and `--schema-file`.",
    ),
    IcebergRow(
        name=SORT_BY,
        kind=_layout(
            f"terms separated by commas, each {LEGAL_TERMS}, with or without asc, desc, nulls first or nulls last",
            without_order,
        ),
        documentation="How a new table is sorted, such as `key, timestamp desc`, instead of the export's "
        "`--sort-by`; the export without Spark does not sort.",
    ),
    IcebergRow(
        name=STARTING_OFFSETS,
        kind=_choice(StartingOffsets),
        documentation="Where the first export of the topic begins, instead of the export's `--starting-offsets`.",
    ),
    IcebergRow(
        name=TABLE,
        kind=_name("a table's name, or namespace.name, without the catalog", _TABLE_NAME),
        documentation="The table, instead of the export's `--table`: a name in the same namespace, or in one that "
        "the export allows by `--table-namespace`.",
    ),
    IcebergRow(
        name=VALUE_FORMAT,
        kind=_choice(IcebergValueFormat),
        documentation="The format of values, instead of the export's `--value-format`.",
    ),
)
"""Ascending by name."""
