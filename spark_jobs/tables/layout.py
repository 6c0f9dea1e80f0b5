"""The partitioning and sort order of a table: from the command line's words to Iceberg's SQL. Pure."""

import re
from collections.abc import Collection, Sequence

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from kafscale.lake.layout_terms import parse_term

_SORT = re.compile(r"(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE)


def partition_terms(terms: Sequence[str], columns: Collection[str] | None) -> list[str]:
    """The terms in Iceberg's SQL. Raises `SettingError`, also for a column that the table will not have."""
    return [_term("--partition-by", term, columns) for term in terms]


def sort_terms(terms: Sequence[str], columns: Collection[str] | None) -> list[str]:
    """The terms of a sort order: each may be followed by asc or desc, and nulls first or nulls last."""
    written = []
    for term in terms:
        match = _SORT.fullmatch(term.strip())
        assert match is not None, "the expression takes any text"
        order = f" {match[2].upper()}" if match[2] else ""
        nulls = f" NULLS {match[3].upper()}" if match[3] else ""
        written.append(_term("--sort-by", match[1], columns) + order + nulls)
    return written


def check_terms(partitions: Sequence[str], order: Sequence[str]) -> None:
    """Raise `SettingError` for terms that no table can have, whatever its columns."""
    partition_terms(partitions, None)
    sort_terms(order, None)


def _term(option: str, text: str, columns: Collection[str] | None) -> str:
    term = parse_term(option, text, columns)
    column = quoted(term.column)
    if term.transform == "identity":
        return column
    return f"{term.transform}({term.width}, {column})" if term.width else f"{term.transform}s({column})"


def quoted(identifier: str) -> str:
    """A name with dots, each part in backticks."""
    return ".".join(map(quoted_name, identifier.split(".")))


def quoted_name(name: str) -> str:
    """One name in backticks, also if it has dots."""
    return f"`{name.replace('`', '``')}`"


def type_text(of: DataType) -> str:
    """A type in SQL, with every field's name in backticks, which Spark's own text lacks."""
    if isinstance(of, StructType):
        return f"struct<{', '.join(f'{quoted_name(one.name)}: {type_text(one.dataType)}' for one in of)}>"
    if isinstance(of, ArrayType):
        return f"array<{type_text(of.elementType)}>"
    if isinstance(of, MapType):
        return f"map<{type_text(of.keyType)}, {type_text(of.valueType)}>"
    return of.simpleString()
