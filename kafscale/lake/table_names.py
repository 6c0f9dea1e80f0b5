"""The full names of tables, as SQL writes them, and the tables of a topic, by name or by rule. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.errors import SettingError

_PART = re.compile(r"[A-Za-z0-9_-]+")
_TOPIC = "{topic}"
_TABLE = "{table}"

LEGAL: Final = (
    "catalog.namespace.table, such as local.db.events, each part of letters, digits, _ and - (more parts are more "
    "levels of the namespace)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table by its full name."""

    catalog: str
    namespace: tuple[str, ...]
    table: str

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.namespace, self.table))


def parse_table_name(option: str, text: str) -> TableName:
    """`text` as the value of the option. Raises `SettingError` unless it names catalog, namespace and table."""
    parts = text.strip().split(".")
    if len(parts) < 3 or not all(_PART.fullmatch(part) for part in parts):
        raise SettingError(f"{option} {text!r} is not legal: it must be {LEGAL}{_hint(text, parts)}")
    return TableName(catalog=parts[0], namespace=tuple(parts[1:-1]), table=parts[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The full names of a topic's two tables."""

    rows: str
    dead_letters: str


def tables_of(topics: Iterable[str], table: str, dead_letter_table: str) -> dict[str, Tables]:
    """The tables of each topic.

    In `table` the topic replaces `{topic}`, in `dead_letter_table` also the table `{table}`. A dot, which a table's
    name cannot have, becomes `_`. Raises `SettingError` for a name that is not legal, for two topics that a rule
    gives the same table, and for one table for rows and dead letters.
    """
    named: dict[str, Tables] = {}
    owners: dict[str, str] = {}
    for topic in topics:
        rows = str(parse_table_name("--table", table.replace(_TOPIC, _as_part(topic))))
        letters = dead_letter_table.replace(_TABLE, rows).replace(_TOPIC, _as_part(topic))
        tables = Tables(rows=rows, dead_letters=str(parse_table_name("--dead-letter-table", letters)))
        if tables.rows == tables.dead_letters:
            raise SettingError(
                f"--dead-letter-table {dead_letter_table!r} is not legal: {tables.rows} is the table of the rows"
            )
        if _TOPIC in table and owners.setdefault(rows, topic) != topic:
            raise SettingError(
                f"--table {table!r} is not legal: topics {owners[rows]!r} and {topic!r} would share table {rows}; "
                "give each a run of its own"
            )
        named[topic] = tables
    return named


def names_of(tables: Mapping[str, Tables]) -> list[str]:
    """The names of all tables, each once."""
    return list(dict.fromkeys(name for one in tables.values() for name in (one.rows, one.dead_letters)))


def _hint(text: str, parts: list[str]) -> str:
    if len(parts) == 2 and all(_PART.fullmatch(part) for part in parts):
        return f"; did you mean local.{text.strip()}?"
    return ""


def _as_part(topic: str) -> str:
    return topic.replace(".", "_")
