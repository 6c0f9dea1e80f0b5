"""The mode of a table: rows are appended, or there is one row for each key. Part of the table, by topic. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from kafscale.errors import SettingError
from kafscale.lake.commit_errors import TableRefusedError
from kafscale.lake.export_state import ExportState

PREFIX: Final = "kafscale.mode."


class ExportMode(StrEnum):
    """The ways of a record into its table."""

    APPEND = "append"
    UPSERT = "upsert"


def property_of(topic: str) -> str:
    """The table property that has the mode of a topic; a table without it is appended to."""
    return f"{PREFIX}{topic}"


def mode_of(topic: str, properties: Mapping[str, str]) -> str:
    """The mode in which a table with these properties has the topic."""
    return properties.get(property_of(topic), ExportMode.APPEND)


def check_mode(table: str, properties: Mapping[str, str], state: ExportState, wanted: ExportMode) -> None:
    """Raise `TableRefusedError` if the table has the topic in another mode. `state`: of the topic in the table."""
    found = mode_of(state.topic, properties)
    if state.commit_id and found != wanted:
        raise TableRefusedError(
            f"table {table} has topic {state.topic!r} with --mode {found}, and not with --mode {wanted}: export as "
            "before, or into a new table"
        )


def check_reconcilable(table: str, topic: str, properties: Mapping[str, str]) -> None:
    """Raise `SettingError` for a table that has no row for each record."""
    if mode_of(topic, properties) != ExportMode.APPEND:
        raise SettingError(
            f"table {table} has one row for each key of topic {topic!r} (--mode {mode_of(topic, properties)}), and a "
            "reconciliation compares record by record: it needs a table that is appended to"
        )
