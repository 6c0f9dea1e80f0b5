"""The content of Iceberg tables, read with pyiceberg: another implementation than the one that wrote them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table

from tests.spark_jobs.support.catalogs import IcebergCatalog

_METADATA_FILE = re.compile(r"v(\d+)\.metadata\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """A snapshot of a table's history: what was done, and what its writer said of it."""

    snapshot_id: int
    parent_id: int | None
    operation: str
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """A table as it is now. `history`: from the first snapshot of the current state to the current one.

    `staged`: snapshots that the table names and that are not part of its history.
    """

    rows: list[dict[str, Any]]
    columns: tuple[tuple[str, str], ...]
    properties: Mapping[str, str]
    history: tuple[TableSnapshot, ...]
    staged: tuple[TableSnapshot, ...]
    partition_fields: tuple[str, ...]
    sort_fields: tuple[str, ...]
    data_file_bytes: tuple[int, ...]


def read_table(catalog: IcebergCatalog, name: str) -> WrittenTable:
    """The table under the name that SQL uses: `local.db.t`."""
    with open_table(catalog, name) as table:
        return written_table(table)


def table_exists(catalog: IcebergCatalog, name: str) -> bool:
    """True if the table exists."""
    _, *parts = name.split(".")
    if catalog.database is None:
        return _metadata_file(Path(catalog.warehouse).joinpath(*parts)) is not None
    if not catalog.database.exists():
        return False
    with _sql_catalog(catalog) as found:
        return bool(found.table_exists(tuple(parts)))


@contextmanager
def open_table(catalog: IcebergCatalog, name: str) -> Iterator[Table]:
    """The table as pyiceberg has it."""
    catalog_name, *parts = name.split(".")
    assert catalog_name == catalog.name, f"{name} is not in the catalog {catalog.name}"
    if catalog.database is None:
        metadata_file = _metadata_file(Path(catalog.warehouse).joinpath(*parts))
        assert metadata_file is not None, f"there is no table {name}"
        yield StaticTable.from_metadata(str(metadata_file))
        return
    with _sql_catalog(catalog) as found:
        yield found.load_table(tuple(parts))


def written_table(table: Table) -> WrittenTable:
    """Everything that tests ask of a table."""
    snapshots = {snapshot.snapshot_id: _snapshot(snapshot) for snapshot in table.metadata.snapshots}
    history = []
    at = table.metadata.current_snapshot_id
    while at is not None and at in snapshots:
        history.append(snapshots.pop(at))
        at = history[-1].parent_id
    schema = table.schema()
    return WrittenTable(
        # pyiceberg gives null lists as empty ones; a test asks Spark which they are.
        rows=[
            row | {"headers": row["headers"] or None} if "headers" in row else row
            for row in table.scan().to_arrow().to_pylist()
        ],
        columns=tuple((field.name, str(field.field_type)) for field in schema.fields),
        properties=dict(table.properties),
        history=tuple(reversed(history)),
        staged=tuple(snapshots.values()),
        partition_fields=tuple(
            f"{field.transform}({schema.find_column_name(field.source_id)})" for field in table.spec().fields
        ),
        sort_fields=tuple(
            f"{field.transform}({schema.find_column_name(field.source_id)})"
            for field in table.sort_order().fields
        ),
        data_file_bytes=tuple(task.file.file_size_in_bytes for task in table.scan().plan_files()),
    )


def _metadata_file(folder: Path) -> Path | None:
    """The newest version of a table of a Hadoop catalog. The hint is not asked: it may lag behind."""
    versions = {
        int(match[1]): path
        for path in folder.glob("metadata/*.metadata.json")
        if (match := _METADATA_FILE.fullmatch(path.name))
    }
    return versions[max(versions)] if versions else None


@contextmanager
def _sql_catalog(catalog: IcebergCatalog) -> Iterator[SqlCatalog]:
    opened = SqlCatalog(
        catalog.name,
        uri=f"sqlite:///{catalog.database}",
        warehouse=catalog.warehouse,
        init_catalog_tables="false",
        **catalog.read_properties,
    )
    try:
        yield opened
    finally:
        opened.engine.dispose()


def _snapshot(snapshot: Any) -> TableSnapshot:
    summary = snapshot.summary
    return TableSnapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        operation=summary.operation.value,
        summary=dict(summary.additional_properties),
    )
