"""The tables that options of `kafscale export` and `kafscale reconcile` name."""

from typing import Final

from kafscale.errors import SettingError
from kafscale.lake.table_names import parse_table_name

DEFAULT_NAMESPACE: Final = "kafka"

Identifier = tuple[str, ...]


def table_identifiers(
    topic: str, table: str | None, dead_letter_table: str | None, catalog: str
) -> tuple[Identifier, Identifier]:
    """Namespace and name of the table, and of the dead-letter table. Raises `SettingError`."""
    rows = table or f"{DEFAULT_NAMESPACE}.{topic.replace('.', '_')}"
    letters = dead_letter_table or f"{rows}_dead_letters"
    if rows == letters:
        raise SettingError(f"--dead-letter-table {letters!r} is not legal: it is the table of the rows")
    return _identifier("--table", rows, catalog), _identifier("--dead-letter-table", letters, catalog)


def _identifier(option: str, text: str, catalog: str) -> Identifier:
    try:
        name = parse_table_name(option, f"{catalog}.{text}")
    except SettingError:
        raise SettingError(
            f"{option} {text!r} is not legal: it must be NAMESPACE.NAME, each part of letters, digits, _ and -, "
            "without the catalog"
        ) from None
    return (*name.namespace, name.table)
