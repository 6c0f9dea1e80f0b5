"""Tables of exports in a catalog: created if missing, used as they are if they exist, with columns added."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType, IntegerType, ListType, LongType, StructType

from kafscale.errors import SettingError
from kafscale.lake.commit_errors import TableRefusedError
from kafscale.lake.iceberg.lake_errors import CATALOG_ERRORS, lake_errors, reason_of
from kafscale.lake.layout_terms import KAFKA, LayoutTerm, parse_term
from kafscale.lake.table_care import properties_of_new_table, properties_to_add

logger = logging.getLogger(__name__)

# Spark's exporter stages its rows, which asks for the second; the third is its default, which no other writer reads.
_PROPERTIES: Final = {
    "format-version": "2",
    "write.wap.enabled": "true",
    "write.distribution-mode": "hash",
    **properties_of_new_table(),
}
_MOST_RECENT_FORMAT: Final = 2
_TIMES: Final = {"year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutOptions:
    """The layout of a new table. `properties` are also set on an existing table, the rest is not.

    `adds_columns`: add the columns that an existing table lacks; otherwise they are left out of the rows.
    """

    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    adds_columns: bool = True


class TableStore:
    """The tables of one catalog. All methods raise `LakeError`."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def find(self, identifier: tuple[str, ...]) -> Table | None:
        """The table as it is now; None if there is none."""
        shown = ".".join(identifier)
        with lake_errors(f"cannot read table {shown}"):
            try:
                return self.catalog.load_table(identifier)
            except NoSuchTableError:
                return None

    def ensure(self, identifier: tuple[str, ...], columns: Schema, options: LayoutOptions) -> Table:
        """The table, which can take rows of these columns as far as its options allow.

        Raises `SettingError` for a layout that is not legal, `TableRefusedError`.
        """
        table = self.find(identifier)
        if table is None:
            return self._create(identifier, columns, options)
        self._set_properties(table, options)
        self.check(table, columns)
        if options.adds_columns and _missing(table, columns):
            table = self._add_columns(table, columns)
        _check_required(table, columns)
        return table

    def check(self, table: Table, columns: Schema) -> None:
        """Raise `TableRefusedError` if no option lets the table take rows of these columns."""
        _check_version(table)
        _check_shape(table)
        _check_columns(table, columns)

    def _create(self, identifier: tuple[str, ...], columns: Schema, options: LayoutOptions) -> Table:
        spec = partition_spec(options.partition_by, columns)
        shown = ".".join(identifier)
        with lake_errors(f"cannot create table {shown}"):
            self.catalog.create_namespace_if_not_exists(identifier[:-1])
            try:
                created = self.catalog.create_table(
                    identifier, columns, partition_spec=spec, properties={**_PROPERTIES, **options.properties}
                )
            except TableAlreadyExistsError:
                # Two exporters of two topics create one table at once.
                return self.ensure(identifier, columns, options)
        logger.info("created table %s", shown)
        return created

    def _set_properties(self, table: Table, options: LayoutOptions) -> None:
        wanted = {
            **properties_to_add(table.properties),
            **options.properties,
            "write.wap.enabled": "true",
        }
        changed = {key: value for key, value in wanted.items() if table.properties.get(key) != value}
        if changed:
            with lake_errors(f"cannot set properties of table {_name(table)}"), table.transaction() as change:
                change.set_properties(changed)

    def _add_columns(self, table: Table, columns: Schema) -> Table:
        try:
            with table.update_schema() as change:
                change.union_by_name(Schema(*_missing(table, columns)))
        except CATALOG_ERRORS as problem:
            raise TableRefusedError(
                f"table {_name(table)} cannot take the columns of the export: {reason_of(problem)}"
            ) from problem
        return table


def partition_spec(terms: Sequence[str], columns: Schema) -> PartitionSpec:
    """The partitioning as the command line has it, with the names that Spark gives. Raises `SettingError`."""
    fields = []
    for number, text in enumerate(terms):
        term = parse_term("--partition-by", text, columns.column_names)
        source = columns.find_field(term.column)
        transform, name = _transform(term)
        if not transform.can_transform(source.field_type):
            raise SettingError(
                f"--partition-by {text!r} is not legal: column {term.column!r} is of type {source.field_type}"
            )
        fields.append(PartitionField(source.field_id, 1000 + number, transform, name))
    return PartitionSpec(*fields)


def _transform(term: LayoutTerm) -> tuple[Transform[Any, Any], str]:
    match term.transform:
        case "identity":
            return IdentityTransform(), term.column
        case "bucket":
            return BucketTransform(term.width), f"{term.column}_bucket"
        case "truncate":
            return TruncateTransform(term.width), f"{term.column}_trunc"
        case time:
            return _TIMES[time](), f"{term.column}_{time}"


def _missing(table: Table, columns: Schema) -> list[Any]:
    present = set(table.schema().column_names)
    return [one for one in columns.fields if one.name not in present]


def _check_version(table: Table) -> None:
    if table.metadata.format_version > _MOST_RECENT_FORMAT:
        raise TableRefusedError(
            f"table {_name(table)} has format version {table.metadata.format_version}; this export writes up to "
            f"{_MOST_RECENT_FORMAT}: use the Spark job (python -m spark_jobs.export)"
        )


def _check_shape(table: Table) -> None:
    kafka = {one.name: one.field_type for one in table.schema().fields}.get(KAFKA)
    if isinstance(kafka, StructType) and "offset" in {one.name for one in kafka.fields}:
        raise TableRefusedError(
            f"table {_name(table)} is flat: it was made by the Spark job with --flatten, and only that goes on with "
            "it (python -m spark_jobs.export)"
        )


def _check_columns(table: Table, columns: Schema) -> None:
    for brought in columns.fields:
        there = {one.name: one.field_type for one in table.schema().fields}.get(brought.name)
        if there is not None and not _takes(there, brought.field_type):
            raise TableRefusedError(
                f"table {_name(table)} cannot take the columns of the export: {brought.name} is {there} there and "
                f"{brought.field_type} here; give the formats that the table was made with, or use the Spark job "
                "(python -m spark_jobs.export), which decodes JSON, Avro and Protobuf"
            )


def _takes(there: IcebergType, brought: IcebergType) -> bool:
    """True if every value of the second type is one of the first; names count, field ids do not."""
    if isinstance(there, LongType) and isinstance(brought, IntegerType):
        return True
    if isinstance(there, ListType) and isinstance(brought, ListType):
        return _takes(there.element_type, brought.element_type)
    if isinstance(there, StructType) and isinstance(brought, StructType):
        fields = {one.name: one.field_type for one in brought.fields}
        return fields.keys() == {one.name for one in there.fields} and all(
            _takes(one.field_type, fields[one.name]) for one in there.fields
        )
    return bool(there == brought)


def _check_required(table: Table, columns: Schema) -> None:
    brought = set(columns.column_names)
    for one in table.schema().fields:
        if one.required and one.name not in brought:
            raise TableRefusedError(
                f"table {_name(table)} requires column {one.name!r}, which the export does not bring: make it "
                f"optional with ALTER TABLE {_name(table)} ALTER COLUMN {one.name} DROP NOT NULL"
            )


def _name(table: Table) -> str:
    return ".".join(table.name())
