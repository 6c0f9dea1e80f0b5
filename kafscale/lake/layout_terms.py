"""The terms of a table's layout as the command line has them: `days(timestamp)`, `bucket(16, key)`. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.layout_syntax import LEGAL_TERMS as LEGAL_TERMS
from kafscale.cluster.layout_syntax import split_terms as split_terms
from kafscale.cluster.layout_syntax import term_parts
from kafscale.errors import SettingError

KAFKA: Final = "_kafka"
"""The column of a flat table that has what Kafka knows of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTerm:
    """A transform of a column. `transform`: year, month, day, hour, bucket, truncate, or identity.

    `width`: of bucket and truncate, 0 for the others.
    """

    transform: str
    column: str
    width: int = 0


def parse_term(option: str, text: str, columns: Collection[str] | None) -> LayoutTerm:
    """The term. Raises `SettingError`, also for a column that is not one of `columns`, as far as they are known."""
    parts = term_parts(text)
    if parts is None:
        raise SettingError(f"{option} {text!r} is not legal: each term must be {LEGAL_TERMS}")
    transform, column, width = parts
    term = LayoutTerm(transform=transform, column=column, width=width)
    if columns is not None and term.column.split(".")[0] not in columns:
        raise SettingError(
            f"{option} {text!r} is not legal: there is no column {term.column!r}; the columns are "
            f"{', '.join(columns)}"
        )
    return term
