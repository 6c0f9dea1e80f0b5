"""`kafscale export` in the test's own process, and what it left in its tables."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from kafscale.commands.cli import main
from kafscale.lake.export_state import ExportState, decode_state, property_of
from kafscale.lake.iceberg.catalogs import DATABASE_NAME
from kafscale.settings.broker import Settings
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import store_environment
from tests.spark_jobs.support.read_back import WrittenTable, open_table, read_table, table_exists


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`text`: what was printed, on both streams."""

    status: int
    text: str


def folder_catalog(folder: Path, name: str = "local") -> IcebergCatalog:
    """The catalog that `--to FOLDER` makes, as tests read it, and as Spark's sessions know it."""
    warehouse = f"file://{folder}"
    return IcebergCatalog(
        name=name,
        warehouse=warehouse,
        properties={
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder / DATABASE_NAME}",
            "jdbc.schema-version": "V1",
            "warehouse": warehouse,
        },
        database=folder / DATABASE_NAME,
        read_properties={},
    )


class LakeExporter:
    """Runs the command again and again with the same stores, topic and warehouse. `more`: options of every run.

    Tests that use it put the process's logging back (`logging_as_before`).
    """

    def __init__(self, settings: Settings, topic: str, folder: Path, *more: str) -> None:
        self.settings = settings
        self.topic = topic
        self.folder = folder
        self.catalog = folder_catalog(folder)
        self.table = f"local.kafka.{topic.replace('.', '_')}"
        self._more = more

    def arguments(self, *more: str) -> list[str]:
        """The command line behind `kafscale`."""
        return ["export", self.topic, "--to", str(self.folder), *self._more, *more]

    def run(self, *more: str) -> Outcome:
        """One run, whatever it comes to."""
        done = CliRunner().invoke(main, self.arguments(*more), env=store_environment(self.settings))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Outcome(status=done.exit_code, text=done.output)

    def export(self, *more: str) -> WrittenTable:
        """One run that must succeed; what the table then holds."""
        done = self.run(*more)
        assert done.status == 0, done.text
        return self.read()

    def exists(self) -> bool:
        """True if there is a table."""
        return table_exists(self.catalog, self.table)

    def read(self) -> WrittenTable:
        """The table as it is now."""
        return read_table(self.catalog, self.table)

    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead-letter table's rows, in order."""
        return in_order(read_table(self.catalog, f"{self.table}_dead_letters").rows)

    def state(self) -> ExportState:
        """The export state in the newest snapshot, which the property repeats."""
        written = self.read()
        name = property_of(self.topic)
        assert written.history[-1].summary[name] == written.properties[name]
        return decode_state(self.topic, written.properties[name])

    def stored_rows(self) -> list[dict[str, Any]]:
        """The rows as the files have them: pyiceberg reads null lists as empty ones."""
        with open_table(self.catalog, self.table) as table:
            paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        read: Any = pq.read_table
        return in_order([row for path in paths for row in read(path, partitioning=None).to_pylist()])

    def filtered(self, row_filter: str) -> list[int]:
        """The offsets of the rows that pyiceberg finds with a filter, by partition and offset."""
        with open_table(self.catalog, self.table) as table:
            found = table.scan(row_filter=row_filter, selected_fields=("partition", "offset")).to_arrow()
        return [row["offset"] for row in in_order(found.to_pylist())]

    @contextmanager
    def opened_catalog(self) -> Iterator[Catalog]:
        """The catalog, as pyiceberg has it."""
        found = SqlCatalog(
            self.catalog.name, uri=f"sqlite:///{self.catalog.database}", warehouse=self.catalog.warehouse
        )
        try:
            yield found
        finally:
            found.close()

    def files(self) -> set[Path]:
        """All data files, also those that no snapshot names."""
        return set(self.folder.rglob("*.parquet"))


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows by partition and offset; two of the same coordinates stay two."""
    return sorted((dict(row) for row in rows), key=lambda row: (row["partition"], row["offset"]))
