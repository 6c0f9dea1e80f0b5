"""The syntax of a table's layout, `days(timestamp), bucket(16, key)`, in topic configs and options. Pure."""

import re
from typing import Final

_IDENTIFIER: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_PLAIN: Final = re.compile(_IDENTIFIER)
_TIME: Final = re.compile(rf"(year|month|day|hour)s?\(\s*({_IDENTIFIER})\s*\)")
_SIZED: Final = re.compile(rf"(bucket|truncate)\(\s*([1-9][0-9]{{0,8}})\s*,\s*({_IDENTIFIER})\s*\)")
_SORT: Final = re.compile(r"(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL)

IDENTITY: Final = "identity"
LEGAL_TERMS: Final = "a column, year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(n, c)"


def split_terms(text: str) -> list[str]:
    """The terms of a list separated by commas; commas inside of parentheses do not count."""
    return [term.strip() for term in re.split(r",(?![^(]*\))", text) if term.strip()]


def term_parts(text: str) -> tuple[str, str, int] | None:
    """The transform of a term, its column, and the width of bucket and truncate (else 0); None: no term."""
    if _PLAIN.fullmatch(text):
        return IDENTITY, text, 0
    if match := _TIME.fullmatch(text):
        return match[1], match[2], 0
    if match := _SIZED.fullmatch(text):
        return match[1], match[3], int(match[2])
    return None


def without_order(text: str) -> str:
    """A term of a sort order without its asc or desc, and nulls first or nulls last."""
    match = _SORT.fullmatch(text.strip())
    assert match is not None, "the expression takes any text"
    return match[1]
