"""Parquet files of a table, written while the rows come: memory is bounded, whatever the size of the batch."""

import logging
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from kafscale.lake.iceberg.lake_errors import CATALOG_ERRORS, reason_of
from kafscale.lake.iceberg.partition_keys import PartitionKey, divide

logger = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
ROW_GROUP_BYTES: Final = 32 * MIB
BUFFERED_BYTES: Final = 128 * MIB
"""The rows of all partitions that wait for their row groups, as Arrow has them."""
MOST_OPEN_FILES: Final = 64


class DataFileWriter:
    """Writes rows into new files of a table, which nothing refers to until they are committed.

    `columns`: those of the table that the rows have; the others are null. `prefix`: of the files' names, unique to
    the commit. `target_bytes`: a file with that much, as Arrow has it, is closed. pyiceberg's own writer is not
    used because it makes empty lists of those that are null.
    """

    def __init__(self, table: Table, columns: Schema, prefix: str, target_bytes: int) -> None:
        self._table = table
        self._schema = table.schema().select(*columns.column_names)
        self._arrow_schema = schema_to_pyarrow(self._schema)
        self._prefix = prefix
        self._target_bytes = target_bytes
        self._spec = table.spec()
        self._open: dict[PartitionKey | None, _OpenFile] = {}
        self._buffered_bytes = 0
        self._written: list[DataFile] = []
        self._count = 0
        self.row_count = 0

    def write(self, rows: pa.Table) -> None:
        """Take the rows."""
        if not rows.num_rows:
            return
        self.row_count += rows.num_rows
        fitted = rows.select(self._arrow_schema.names).cast(self._arrow_schema)
        if self._spec.is_unpartitioned():
            self._append(None, fitted)
            return
        for key, part in divide(fitted, self._spec, self._table.schema()):
            self._append(key, part)

    def finish(self) -> list[DataFile]:
        """Close all files; returns them, to be committed."""
        for key in list(self._open):
            self._close(key)
        return self._written

    def discard(self) -> None:
        """Delete all files, of which nothing was committed. Best-effort: failures are logged.

        What is left is found by the maintenance of tables, as after a process that was killed.
        """
        for path in [
            *(file.abandon() for file in self._open.values()),
            *(one.file_path for one in self._written),
        ]:
            try:
                self._table.io.delete(path)
            except CATALOG_ERRORS as problem:
                logger.warning("could not delete %s, which no table refers to: %s", path, reason_of(problem))
        self._open.clear()
        self._written.clear()

    def _append(self, key: PartitionKey | None, rows: pa.Table) -> None:
        file = self._open.get(key)
        if file is None:
            if len(self._open) >= MOST_OPEN_FILES:
                self._close(max(self._open, key=lambda one: self._open[one].total_bytes))
            file = self._open[key] = self._new_file(key)
        file.buffer(rows)
        self._buffered_bytes += rows.nbytes
        if file.buffered_bytes >= ROW_GROUP_BYTES:
            self._flush(file)
        elif self._buffered_bytes >= BUFFERED_BYTES:
            self._flush(max(self._open.values(), key=lambda one: one.buffered_bytes))
        if file.total_bytes >= self._target_bytes:
            self._close(key)

    def _flush(self, file: "_OpenFile") -> None:
        self._buffered_bytes -= file.buffered_bytes
        file.flush()

    def _close(self, key: PartitionKey | None) -> None:
        file = self._open.pop(key)
        self._flush(file)
        self._written.append(file.close(self._spec.spec_id))

    def _new_file(self, key: PartitionKey | None) -> "_OpenFile":
        self._count += 1
        name = f"{self._prefix}-{self._count:05d}.parquet"
        place: Any = key  # asked for its path only
        path = self._table.location_provider().new_data_location(name, place)
        return _OpenFile(self._table, self._schema, path, key)


class _OpenFile:
    def __init__(self, table: Table, schema: Schema, path: str, key: PartitionKey | None) -> None:
        self._path = path
        self._key = key
        self._output = table.io.new_output(path)
        model = FileFormatFactory.get(FileFormat.PARQUET)
        self._writer: Any = model.create_writer(self._output, schema, table.properties)
        self._rows: list[pa.Table] = []
        self.buffered_bytes = 0
        self.total_bytes = 0

    def buffer(self, rows: pa.Table) -> None:
        self._rows.append(rows)
        self.buffered_bytes += rows.nbytes
        self.total_bytes += rows.nbytes

    def flush(self) -> None:
        """Write what is buffered as a row group."""
        if self._rows:
            self._writer.write(pa.concat_tables(self._rows).combine_chunks())
        self._rows, self.buffered_bytes = [], 0

    def abandon(self) -> str:
        """Give the stream back, whatever the file then is; returns its path."""
        try:
            self._writer.close()
        except CATALOG_ERRORS as problem:
            logger.debug("%s is incomplete: %s", self._path, reason_of(problem))
        return self._path

    def close(self, spec_id: int) -> DataFile:
        statistics = self._writer.close()
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._path,
            file_format=FileFormat.PARQUET,
            partition=Record() if self._key is None else self._key.partition,
            file_size_in_bytes=len(self._output),
            sort_order_id=None,
            spec_id=spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
