"""The rows of one side as a comparison needs them: where they belong, and a hash of each column."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, IntegerType, LongType, StringType

from kafscale.errors import SettingError
from kafscale.lake.export_state import ExportState, topic_of_property
from kafscale.lake.iceberg.lake_errors import lake_errors
from kafscale.lake.iceberg.publish import state_of
from kafscale.lake.iceberg.row_hash import Hashes, column_hashes, row_hashes

TOPIC, PARTITION, OFFSET = "topic", "partition", "offset"
COMPARED: Final = ("key", "value", "timestamp", "timestampType", "headers")
NO_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class HashedRows:
    """Some rows. `partitions`, `offsets`: numpy arrays, -1 for null; `columns`: each column's hashes."""

    partitions: Any
    offsets: Any
    columns: Sequence[Hashes]

    def hashes(self) -> Hashes:
        """One hash for each row: of its place and its columns."""
        return row_hashes([self.partitions.astype(np.uint64), self.offsets.astype(np.uint64), *self.columns])

    def only(self, wanted: Any) -> "HashedRows":
        """The rows for which `wanted` is True."""
        return HashedRows(
            self.partitions[wanted], self.offsets[wanted], [column[wanted] for column in self.columns]
        )


def hashed(batch: pa.RecordBatch, columns: Sequence[str]) -> HashedRows:
    """The rows of a batch that has coordinates and these columns."""
    return HashedRows(
        _coordinates(batch, PARTITION),
        _coordinates(batch, OFFSET),
        [column_hashes(batch.column(name)) for name in columns],
    )


def _coordinates(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name).cast(pa.int64()).fill_null(NO_PARTITION).to_numpy()


class StoredSide:
    """The rows of the topic in the current snapshot of a table.

    Raises `SettingError` for a table whose rows cannot be told apart, or whose values are decoded.
    """

    def __init__(self, table: Table, topic: str, except_columns: Sequence[str] = ()) -> None:
        self._table = table
        self._topic = topic
        self._name = ".".join(table.name())
        types = {one.name: one.field_type for one in table.schema().fields}
        for name in (PARTITION, OFFSET):
            if not isinstance(types.get(name), IntegerType | LongType):
                raise SettingError(
                    f"table {self._name} has no column {name!r}, and without it no row can be found again in the "
                    "topic"
                )
        self._has_topic = TOPIC in types
        others = {found for name in table.properties if (found := topic_of_property(name)) is not None} - {
            topic
        }
        if not self._has_topic and others:
            raise SettingError(
                f"table {self._name} has several topics and no column {TOPIC!r} that tells their rows apart"
            )
        self.columns = tuple(name for name in COMPARED if name in types and name not in except_columns)
        for name in ("key", "value"):
            if name in self.columns and not isinstance(types[name], BinaryType | StringType):
                raise SettingError(
                    f"column {name!r} of table {self._name} is {types[name]}, which only Spark decodes: compare with "
                    f"python -m spark_jobs.reconcile, or leave it out with --except-column {name}"
                )
        known = {TOPIC, PARTITION, OFFSET, *self.columns}
        self.not_compared = tuple(
            [name for name in COMPARED if name not in self.columns]
            + [name for name in types if name not in known and name not in COMPARED]
        )
        self.state: ExportState = state_of(table.metadata, topic)
        self._snapshot_id = table.metadata.current_snapshot_id

    def rows(self, columns: Sequence[str], row_filter: str | None = None) -> Iterator[HashedRows]:
        """The rows, in no order. Raises `LakeError`."""
        if self._snapshot_id is None:
            return
        wanted = [f"{TOPIC} = '{self._topic}'"] if self._has_topic else []
        wanted += [row_filter] if row_filter else []
        with lake_errors(f"cannot read {self._name}"):
            scan = self._table.scan(
                row_filter=" AND ".join(wanted) or "true",
                selected_fields=(PARTITION, OFFSET, *columns),
                snapshot_id=self._snapshot_id,
            )
            for batch in scan.to_arrow_batch_reader():
                yield hashed(batch, columns)
