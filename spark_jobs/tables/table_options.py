"""The layout of an export's table, as values behind the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The layout of a table. `properties` are also set on an existing table, the rest is not.
    `new_properties`: of a new table, unless `properties` has them.

    `adds_columns`: add the columns that an existing table lacks; otherwise they are dropped from the rows.
    """

    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    adds_columns: bool = True
    new_properties: Mapping[str, str] = field(default_factory=dict)
