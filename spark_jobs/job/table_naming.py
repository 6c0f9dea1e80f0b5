"""Which table a topic goes to: the name given, or a rule with `{topic}` in it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kafscale.errors import SettingError
from spark_jobs.table_names import parse_table_name

_TOPIC = "{topic}"
_TABLE = "{table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The full names of a topic's two tables."""

    rows: str
    dead_letters: str


def tables_of(topics: Iterable[str], table: str, dead_letter_table: str) -> dict[str, Tables]:
    """The tables of each topic.

    In `table` the topic stands for `{topic}`, in `dead_letter_table` also the table for `{table}`; what a table's
    name cannot have becomes `_`. Raises `SettingError` for a name that is not legal, for two topics that a rule
    would bring together, and for one table for rows and dead letters.
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


def _as_part(topic: str) -> str:
    return topic.replace(".", "_")
