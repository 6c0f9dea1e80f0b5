"""The rows that a table of settings is made of: a dataclass's fields, each of which holds its own row."""

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from kafscale.settings.kinds import Kind

T = TypeVar("T")

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
KIB = 2**10
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One row. `default`: as it would stand in the environment, or words when it is derived.

    `is_secret`: the value must not appear in a log, a trace or an error.
    """

    variable: str
    field: str
    kind: Kind[Any]
    default: str
    documentation: str
    is_secret: bool


def setting(variable: str, kind: Kind[T], default: str, documentation: str) -> T:
    """A field that holds its row; its default is parsed like a value of the environment."""
    metadata = {"row": (variable, kind, default, documentation)}
    return dataclasses.field(default=kind.parse(default), metadata=metadata)


def derived(variable: str, kind: Kind[T | None], default: str, documentation: str) -> T | None:
    """A field that is None unless set; `default` says in words what holds then."""
    metadata = {"row": (variable, kind, default, documentation)}
    return cast(T | None, dataclasses.field(default=None, metadata=metadata))


def secret(variable: str, kind: Kind[T | None], default: str, documentation: str) -> T | None:
    """The same, for what must not appear in a log or a trace."""
    metadata = {"row": (variable, kind, default, documentation)}
    return cast(T | None, dataclasses.field(default=None, repr=False, metadata=metadata))


def row_of(field: "dataclasses.Field[Any]") -> SettingRow:
    """The row that a field holds."""
    variable, kind, default, documentation = field.metadata["row"]
    return SettingRow(
        variable=variable,
        field=field.name,
        kind=kind,
        default=default,
        documentation=documentation,
        is_secret=not field.repr,
    )
