"""The partitioning and sort order of a table: from the command line's words to Iceberg's SQL. Pure."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from kafscale.errors import SettingError

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_PLAIN = re.compile(_IDENTIFIER)
_TIME = re.compile(rf"(year|month|day|hour)s?\(\s*({_IDENTIFIER})\s*\)")
_SIZED = re.compile(rf"(bucket|truncate)\(\s*([1-9][0-9]{{0,8}})\s*,\s*({_IDENTIFIER})\s*\)")
_SORT = re.compile(r"(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE)

LEGAL_TERMS: Final = "a column, year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(n, c)"


def partition_terms(terms: Sequence[str], columns: Collection[str]) -> list[str]:
    """The terms in Iceberg's SQL. Raises `SettingError`, also for a column that the table will not have."""
    return [_term("--partition-by", term, columns) for term in terms]


def sort_terms(terms: Sequence[str], columns: Collection[str]) -> list[str]:
    """The terms of a sort order: each may be followed by asc or desc, and nulls first or nulls last."""
    written = []
    for term in terms:
        match = _SORT.fullmatch(term.strip())
        assert match is not None, "the expression takes any text"
        order = f" {match[2].upper()}" if match[2] else ""
        nulls = f" NULLS {match[3].upper()}" if match[3] else ""
        written.append(_term("--sort-by", match[1], columns) + order + nulls)
    return written


def _term(option: str, term: str, columns: Collection[str]) -> str:
    if _PLAIN.fullmatch(term):
        return _column(option, term, term, columns)
    if match := _TIME.fullmatch(term):
        return f"{match[1]}s({_column(option, term, match[2], columns)})"
    if match := _SIZED.fullmatch(term):
        return f"{match[1]}({match[2]}, {_column(option, term, match[3], columns)})"
    raise SettingError(f"{option} {term!r} is not legal: each term must be {LEGAL_TERMS}")


def _column(option: str, term: str, column: str, columns: Collection[str]) -> str:
    if column.split(".")[0] not in columns:
        raise SettingError(
            f"{option} {term!r} is not legal: there is no column {column!r}; the columns are {', '.join(columns)}"
        )
    return quoted(column)


def quoted(identifier: str) -> str:
    """A name with dots, each part in backticks."""
    return ".".join(map(_quoted_name, identifier.split(".")))


def _quoted_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def type_text(of: DataType) -> str:
    """A type in SQL, with every field's name in backticks, which Spark's own text lacks."""
    if isinstance(of, StructType):
        return f"struct<{', '.join(f'{_quoted_name(one.name)}: {type_text(one.dataType)}' for one in of)}>"
    if isinstance(of, ArrayType):
        return f"array<{type_text(of.elementType)}>"
    if isinstance(of, MapType):
        return f"map<{type_text(of.keyType)}, {type_text(of.valueType)}>"
    return of.simpleString()
