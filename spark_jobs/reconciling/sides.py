"""Topic and tables as comparable hashes of rows: the same columns, decoded and shaped alike."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, StructType

from kafscale.errors import SettingError
from kafscale.lake.ranges import Range
from kafscale.lake.reconciling.spans import Span
from kafscale.reader.topic_state import TopicLog
from spark_jobs.decoding.dead_letters import ERROR, KEY_BYTES, VALUE_BYTES
from spark_jobs.reconciling.row_hash import (
    OFFSET,
    PARTITION,
    column_hash,
    column_of,
    hashed,
    no_column_hash,
    with_coordinates,
)
from spark_jobs.reconciling.table_side import TOPIC
from spark_jobs.reconciling.tallies import Side
from spark_jobs.tables.conform import conformed

_DEAD_LETTER_COLUMNS: Final = ("key", "value", "timestamp", "timestampType", "headers")
"""The compared columns: all but the coordinates and the reason, whose words may have changed."""

_BYTES_OF: Final = {"key": KEY_BYTES, "value": VALUE_BYTES}
_ADDED_BY_DECODING: Final = frozenset({KEY_BYTES, VALUE_BYTES, ERROR})
_COORDINATES: Final = (TOPIC, PARTITION, OFFSET)
_DEAD_PARTITION, _DEAD_OFFSET = "dead_partition", "dead_offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReader:
    """Reads the topic: its published log, its records by partition and range, and their decoder.

    `decode` takes the records and the type of the table's value, and returns them with the decoder's columns.
    """

    log: Callable[[], TopicLog]
    records: Callable[[Mapping[int, Range]], DataFrame]
    decode: Callable[[DataFrame, DataType | None], DataFrame]


class Sides:
    """The compared sides: rows of the table, dead letters, and records of the topic in `spans`.

    A record counts as a dead letter if the dead-letter table has it, whether it would decode today or not.
    """

    def __init__(
        self,
        topic: TopicReader,
        spans: Sequence[Span],
        table: DataFrame | None,
        dead_letters: DataFrame | None,
        except_columns: Collection[str],
    ) -> None:
        self._topic = topic
        self._table = table
        self._dead_letters = dead_letters
        self._except = except_columns
        self._decoded = self._decode(spans) if spans else None
        self._live = [
            one for one in self._topic_columns() if one in self._table_columns() and self._is_compared(one)
        ]
        dead = [] if dead_letters is None else dead_letters.columns
        self._dead = [one for one in _DEAD_LETTER_COLUMNS if one in dead and self._is_compared(one)]
        self.columns = tuple(dict.fromkeys([*self._live, *self._dead]))
        self._check_value()

    def hashes(self) -> dict[Side, DataFrame]:
        """Of all rows, by side; a side without rows is missing."""
        topic = {} if self._decoded is None else {Side.TOPIC: self._topic_hashes(self._decoded)}
        return topic | self._stored()

    def stored_hashes(self) -> DataFrame | None:
        """Of both tables' rows; None if there are none."""
        parts = list(self._stored().values())
        return reduce(DataFrame.unionByName, parts) if parts else None

    def topic_hashes(self, spans: Sequence[Span]) -> DataFrame:
        """Of the topic's records, at least those in the spans."""
        return self._topic_hashes(self._decode(spans))

    def _stored(self) -> dict[Side, DataFrame]:
        sides = (
            (Side.TABLE, self._table, self._live),
            (Side.DEAD_LETTERS, self._dead_letters, self._dead),
        )
        return {
            side: hashed(rows.select(PARTITION, OFFSET, *map(column_of, columns)), self.columns)
            for side, rows, columns in sides
            if rows is not None
        }

    def _topic_hashes(self, decoded: DataFrame) -> DataFrame:
        is_dead: Column | None = None
        if self._dead_letters is not None:
            dead = self._dead_letters.select(
                sql.col(PARTITION).alias(_DEAD_PARTITION), sql.col(OFFSET).alias(_DEAD_OFFSET)
            ).distinct()
            same = (sql.col(PARTITION) == sql.col(_DEAD_PARTITION)) & (
                sql.col(OFFSET) == sql.col(_DEAD_OFFSET)
            )
            decoded = decoded.join(dead, same, "left")
            is_dead = sql.col(_DEAD_OFFSET).isNotNull()
        return with_coordinates(decoded, [self._topic_hash(decoded, one, is_dead) for one in self.columns])

    @property
    def not_compared(self) -> tuple[str, ...]:
        """The excluded columns, each with the reason."""
        in_topic, in_table = self._topic_columns(), self._table_columns()
        reasons = dict.fromkeys(self._except, "left out by --except-column")
        reasons |= {one: "the table does not have it" for one in in_topic if one not in in_table}
        reasons |= {one: "the topic does not have it" for one in in_table if one not in in_topic}
        return tuple(f"{one}: {reason}" for one, reason in reasons.items())

    def _decode(self, spans: Iterable[Span]) -> DataFrame:
        hulls: dict[int, Range] = {}
        for span in spans:
            first, following = hulls.get(span.partition, (span.first, span.next_offset))
            hulls[span.partition] = (min(first, span.first), max(following, span.next_offset))
        types = self._table_types()
        return self._topic.decode(self._topic.records(hulls), types.get("value"))

    def _table_types(self) -> dict[str, DataType]:
        return {} if self._table is None else {one.name: one.dataType for one in self._table.schema}

    def _check_value(self) -> None:
        """Raise `SettingError` if the table's value cannot have been made from the decoded type."""
        if self._decoded is None or "value" not in self._live:
            return
        in_topic, in_table = self._decoded.schema["value"].dataType, self._table_types()["value"]
        if isinstance(in_table, StructType) != isinstance(in_topic, StructType):
            raise SettingError(
                f"--value-format is not legal: it gives values of type {in_topic.simpleString()}, and the table has "
                f"{in_table.simpleString()}; decode as the export did, or leave them out with --except-column value"
            )

    def _table_columns(self) -> list[str]:
        return list(self._table_types())

    def _topic_columns(self) -> list[str]:
        """The columns of the topic; if none of its records are read, those of the table."""
        if self._decoded is None:
            return self._table_columns()
        return [one for one in self._decoded.columns if one not in _ADDED_BY_DECODING]

    def _is_compared(self, column: str) -> bool:
        return column not in _COORDINATES and column not in self._except

    def _topic_hash(self, decoded: DataFrame, column: str, is_dead: Column | None) -> Column:
        brought = {one.name: one.dataType for one in decoded.schema}
        live = no_column_hash()
        if column in self._live:
            wanted = self._table_types()[column]
            live = column_hash(conformed(column_of(column), brought[column], wanted), wanted)
        if is_dead is None:
            return live
        dead = no_column_hash()
        if column in self._dead:
            bytes_of = _BYTES_OF.get(column, column)
            source = bytes_of if bytes_of in brought else column
            dead = column_hash(column_of(source), brought[source])
        return sql.when(is_dead, dead).otherwise(live)
