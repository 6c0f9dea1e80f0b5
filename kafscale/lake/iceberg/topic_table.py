"""A topic's table and its dead-letter table as pyiceberg writes them, for the export that commits batch by batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from kafscale.lake.batch_plan import BatchPlan, check_compacted, check_same_topic
from kafscale.lake.commit_errors import ExportMismatchError, TableRefusedError
from kafscale.lake.dead_letter_limit import DeadLetterBudget
from kafscale.lake.events import ExportEvents
from kafscale.lake.export_mode import ExportMode, check_mode
from kafscale.lake.export_state import ExportState
from kafscale.lake.iceberg.columns import Formats, dead_letter_schema, row_schema
from kafscale.lake.iceberg.data_files import MIB, DataFileWriter
from kafscale.lake.iceberg.decoding import decode
from kafscale.lake.iceberg.lake_errors import lake_errors
from kafscale.lake.iceberg.publish import publish, state_of
from kafscale.lake.iceberg.records import OpenRecords
from kafscale.lake.iceberg.tables import LayoutOptions, TableStore
from kafscale.lake.ranges import Ranges, intersection
from kafscale.lake.routes import property_of as routes_property

DEFAULT_FILE_BYTES: Final = 512 * MIB

Identifier = tuple[str, ...]

pc: Any = pyarrow.compute  # its functions are made when it is loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTables:
    """The tables of a topic in a catalog: namespace and name. `catalog`: its name, for messages."""

    catalog: str
    rows: Identifier
    dead_letters: Identifier
    formats: Formats = field(default_factory=Formats)
    layout: LayoutOptions = field(default_factory=LayoutOptions)
    target_file_bytes: int = DEFAULT_FILE_BYTES

    def shown(self, identifier: Identifier) -> str:
        """The full name, as Spark has it."""
        return ".".join((self.catalog, *identifier))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files with the rows of a batch, which nothing refers to yet; see `WrittenBatch`."""

    files: list[DataFile]
    row_count: int
    dead_letters: int


class IcebergTable:
    """See `ExportTable`. `check` raises if the topic's lease is lost, and makes no request.

    `budget`: the dead letters that the run may still make.
    """

    def __init__(
        self,
        store: TableStore,
        topic: str,
        tables: TopicTables,
        open_records: OpenRecords,
        check: Callable[[], None],
        events: ExportEvents,
        budget: DeadLetterBudget | None = None,
    ) -> None:
        self._store = store
        self._budget = budget
        self._topic = topic
        self._tables = tables
        self._open_records = open_records
        self._check = check
        self._events = events

    def read_state(self) -> ExportState:
        """See `ExportTable`. A table that cannot take the rows is refused, also if there will be none.

        Raises `TableRefusedError`, also for a topic that is divided into tables.
        """
        table = self._store.find(self._tables.rows)
        if table is None:
            return ExportState(topic=self._topic)
        if routes_property(self._topic) in table.properties:
            raise TableRefusedError(
                f"table {self._tables.shown(self._tables.rows)} has routes of topic {self._topic!r} into other "
                "tables, which only the Spark job (python -m spark_jobs.export) knows: use that"
            )
        self._store.check(table, row_schema(self._tables.formats))
        state = state_of(table.metadata, self._topic)
        check_mode(self._tables.shown(self._tables.rows), table.properties, state, ExportMode.APPEND)
        return state

    def _state(self, identifier: Identifier) -> ExportState:
        table = self._store.find(identifier)
        return ExportState(topic=self._topic) if table is None else state_of(table.metadata, self._topic)

    def write(self, batch: BatchPlan, commit_id: str, topic_id: str) -> Written:
        """See `ExportTable`. Raises `LakeError`, `TableRefusedError`, `SettingError`, and the reader's errors."""
        columns = row_schema(self._tables.formats)
        table = self._store.ensure(self._tables.rows, columns, self._tables.layout)
        rows = self._writer(table, commit_id)
        letters = _LazyDeadLetters(self, commit_id)
        try:
            files = self._write_files(batch, topic_id, rows, letters)
            if self._budget is not None:
                self._budget.check(letters.row_count, rows.row_count + letters.row_count)
        except BaseException:
            # Nothing refers to them yet. After an attempt to commit they stay, whatever its outcome.
            rows.discard()
            letters.discard()
            raise
        letters.publish(batch, topic_id)
        return Written(files=files, row_count=rows.row_count, dead_letters=letters.row_count)

    def _write_files(
        self, batch: BatchPlan, topic_id: str, rows: DataFileWriter, letters: "_LazyDeadLetters"
    ) -> list[DataFile]:
        known = self._known_dead_letters(batch, topic_id)
        brought = 0
        skipped: list[int] = []
        for records in self._open_records(batch.wanted, skipped.append):
            self._check()
            brought += records.num_rows
            decoded = decode(known.without(records), self._tables.formats)
            with lake_errors(f"cannot write files of {self._tables.shown(self._tables.rows)}"):
                rows.write(decoded.rows)
            if decoded.dead_letters is not None:
                letters.write(decoded.dead_letters)
            self._events.rows_read(self._topic, brought)
        with lake_errors(f"cannot write files of {self._tables.shown(self._tables.rows)}"):
            files = rows.finish()
        self._compare(batch, brought, sum(skipped))
        return files

    def publish(
        self,
        written: Written,
        before: ExportState,
        after: ExportState,
        summary: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """See `ExportTable`."""
        self._publish(self._tables.rows, written.files, before, after, summary)
        if self._budget is not None:
            self._budget.spend(written.dead_letters)

    def _publish(
        self,
        identifier: Identifier,
        files: list[DataFile],
        before: ExportState,
        after: ExportState,
        summary: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        load = lambda: self._store.catalog.load_table(identifier)  # noqa: E731
        publish(load, self._tables.shown(identifier), files, before, after, summary)

    def _writer(self, table: Table, commit_id: str) -> DataFileWriter:
        present = set(table.schema().column_names)
        columns = row_schema(self._tables.formats)
        brought = columns.select(*(one.name for one in columns.fields if one.name in present))
        return DataFileWriter(table, brought, commit_id, self._tables.target_file_bytes)

    def _compare(self, batch: BatchPlan, brought: int, skipped: int) -> None:
        """Raise `ExportMismatchError` if records are missing. `skipped`: of markers and aborted transactions."""
        if batch.is_compacted:
            check_compacted(batch, self._topic, brought)
            return
        wanted = batch.record_count
        if wanted is None:
            # The segments' own counts are no use for a range that begins inside of one. Nothing is missing if each
            # offset is there.
            wanted = batch.offset_count
        wanted -= skipped
        if wanted > brought:
            # Some offsets have no record.
            wanted = sum(records.num_rows for records in self._open_records(batch.wanted))
        if wanted != brought:
            raise ExportMismatchError(self._topic, brought, wanted)

    def _known_dead_letters(self, batch: BatchPlan, topic_id: str) -> "_KnownLetters":
        """Those of the batch that are in the dead-letter table already.

        A crash between the two commits leaves some there. They stay dead letters, even if they would decode now.
        """
        table = self._store.find(self._tables.dead_letters)
        if table is None:
            return _KnownLetters({})
        state = state_of(table.metadata, self._topic)
        check_same_topic(state, topic_id, self.letters_name)
        ranges = {
            partition: intersection(wanted, state.exported.get(partition, ()))
            for partition, wanted in batch.wanted.items()
        }
        condition = _within(self._topic, ranges)
        if condition is None:
            return _KnownLetters({})
        with lake_errors(f"cannot read {self._tables.shown(self._tables.dead_letters)}"):
            found = table.scan(row_filter=condition, selected_fields=("partition", "offset")).to_arrow()
        offsets: dict[int, list[int]] = {}
        for row in found.to_pylist():
            offsets.setdefault(row["partition"], []).append(row["offset"])
        return _KnownLetters({partition: pa.array(known) for partition, known in offsets.items()})

    def letters_table(self) -> Table:
        """The dead-letter table, created with the first dead letter."""
        layout = LayoutOptions(properties=self._tables.layout.properties)
        return self._store.ensure(self._tables.dead_letters, dead_letter_schema(), layout)

    def publish_letters(self, files: list[DataFile], batch: BatchPlan, commit_id: str, topic_id: str) -> None:
        """Commit dead letters to their table."""
        before = self._state(self._tables.dead_letters)
        after = before.after(
            commit_id=commit_id, topic_id=topic_id, starts={}, exported=batch.wanted, gaps={}
        )
        self._check()
        self._publish(self._tables.dead_letters, files, before, after)

    @property
    def letters_name(self) -> str:
        """The full name of the dead-letter table."""
        return self._tables.shown(self._tables.dead_letters)

    @property
    def target_file_bytes(self) -> int:
        """The size at which files are closed."""
        return self._tables.target_file_bytes


class _LazyDeadLetters:
    """The dead letters of a batch; without any there is no table for them."""

    def __init__(self, owner: IcebergTable, commit_id: str) -> None:
        self._owner = owner
        self._commit_id = commit_id
        self._writer: DataFileWriter | None = None

    @property
    def row_count(self) -> int:
        return 0 if self._writer is None else self._writer.row_count

    def write(self, letters: pa.Table) -> None:
        if self._writer is None:
            table = self._owner.letters_table()
            self._writer = DataFileWriter(
                table, dead_letter_schema(), self._commit_id, self._owner.target_file_bytes
            )
        with lake_errors(f"cannot write files of {self._owner.letters_name}"):
            self._writer.write(letters)

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.discard()

    def publish(self, batch: BatchPlan, topic_id: str) -> None:
        if self._writer is None:
            return
        with lake_errors(f"cannot write files of {self._owner.letters_name}"):
            files = self._writer.finish()
        self._owner.publish_letters(files, batch, self._commit_id, topic_id)


@dataclass(frozen=True, slots=True)
class _KnownLetters:
    """Offsets by partition."""

    offsets: Mapping[int, pa.Array]

    def without(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records that are not known as dead letters."""
        for partition, known in self.offsets.items():
            is_known = pc.and_(
                pc.equal(records.column("partition"), partition),
                pc.is_in(records.column("offset"), value_set=known),
            )
            records = records.filter(pc.invert(is_known))
        return records


def _within(topic: str, ranges: Mapping[int, Ranges]) -> str | None:
    """The rows of the topic in these ranges, as pyiceberg's filter; None if there are no ranges.

    A topic's name has no character that would have to be quoted.
    """
    parts = [
        f"(partition = {partition} AND offset >= {first} AND offset < {following})"
        for partition, wanted in ranges.items()
        for first, following in wanted
    ]
    return f"topic = '{topic}' AND ({' OR '.join(parts)})" if parts else None
