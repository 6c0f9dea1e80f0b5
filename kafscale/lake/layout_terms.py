"""The terms of a table's layout as the command line has them: `days(timestamp)`, `bucket(16, key)`. Pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kafscale.errors import SettingError

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_PLAIN = re.compile(_IDENTIFIER)
_TIME = re.compile(rf"(year|month|day|hour)s?\(\s*({_IDENTIFIER})\s*\)")
_SIZED = re.compile(rf"(bucket|truncate)\(\s*([1-9][0-9]{{0,8}})\s*,\s*({_IDENTIFIER})\s*\)")

LEGAL_TERMS: Final = "a column, year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(n, c)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTerm:
    """A transform of a column. `transform`: year, month, day, hour, bucket, truncate, or identity.

    `width`: of bucket and truncate, 0 for the others.
    """

    transform: str
    column: str
    width: int = 0


def split_terms(text: str) -> list[str]:
    """The terms of a list separated by commas; commas inside of parentheses do not count."""
    return [term.strip() for term in re.split(r",(?![^(]*\))", text) if term.strip()]


def parse_term(option: str, text: str, columns: Collection[str]) -> LayoutTerm:
    """The term. Raises `SettingError`, also for a column that the table will not have."""
    if _PLAIN.fullmatch(text):
        term = LayoutTerm(transform="identity", column=text)
    elif match := _TIME.fullmatch(text):
        term = LayoutTerm(transform=match[1], column=match[2])
    elif match := _SIZED.fullmatch(text):
        term = LayoutTerm(transform=match[1], column=match[3], width=int(match[2]))
    else:
        raise SettingError(f"{option} {text!r} is not legal: each term must be {LEGAL_TERMS}")
    if term.column.split(".")[0] not in columns:
        raise SettingError(
            f"{option} {text!r} is not legal: there is no column {term.column!r}; the columns are "
            f"{', '.join(columns)}"
        )
    return term
