"""The full names of tables: catalog, namespace and name, as SQL writes them. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from kafscale.errors import SettingError

_PART = re.compile(r"[A-Za-z0-9_-]+")

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


def _hint(text: str, parts: list[str]) -> str:
    if len(parts) == 2 and all(_PART.fullmatch(part) for part in parts):
        return f"; did you mean local.{text.strip()}?"
    return ""
