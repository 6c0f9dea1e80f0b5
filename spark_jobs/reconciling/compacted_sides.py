"""The sides of a compacted topic: rows of the tables whose records it has no longer are counted, not compared."""

from collections.abc import Collection, Sequence
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from kafscale.lake.reconciling.spans import Span
from spark_jobs.reconciling.row_hash import OFFSET, PARTITION
from spark_jobs.reconciling.sides import Sides, TopicReader
from spark_jobs.reconciling.tallies import Side, SpanRows

_LEFT_PARTITION, _LEFT_OFFSET, _SPAN = "left_partition", "left_offset", "span"


class CompactedSides(Sides):
    """See `Sides`; until `close`, Spark keeps the hashes of the topic's records.

    They are read once: another compaction could take some away before they were read again.
    """

    def __init__(
        self,
        topic: TopicReader,
        spans: Sequence[Span],
        table: DataFrame | None,
        dead_letters: DataFrame | None,
        except_columns: Collection[str],
        span_rows: SpanRows,
    ) -> None:
        super().__init__(topic, spans, table, dead_letters, except_columns)
        self._spans = spans
        self._span_rows = span_rows
        self._kept: DataFrame | None = None

    def compacted_away(self) -> dict[Span, tuple[int, int]]:
        """The rows whose records are gone, and those of them beyond the first of an offset, by span."""
        parts = list(super()._stored().values())
        if not parts or self._decoded is None:
            return {}
        away = self._placed(reduce(DataFrame.unionByName, parts)).where(_is_away())
        return self._span_rows.repeats(away.drop(_SPAN, _LEFT_PARTITION, _LEFT_OFFSET), self._spans)

    def close(self) -> None:
        """Free what was kept."""
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None

    def _topic_hashes(self, decoded: DataFrame) -> DataFrame:
        if self._kept is None:
            self._kept = super()._topic_hashes(decoded).persist(StorageLevel.DISK_ONLY)
        return self._kept

    def _stored(self) -> dict[Side, DataFrame]:
        stored = super()._stored()
        if self._decoded is None:
            return stored
        return {
            side: self._placed(rows).where(~_is_away()).select(rows.columns) for side, rows in stored.items()
        }

    def _placed(self, rows: DataFrame) -> DataFrame:
        """The rows, each with its span if that is compared, and with its record's coordinates if that is left."""
        assert self._decoded is not None, "there are spans to compare"
        left = (
            self._topic_hashes(self._decoded)
            .select(sql.col(PARTITION).alias(_LEFT_PARTITION), sql.col(OFFSET).alias(_LEFT_OFFSET))
            .distinct()
        )
        same = (sql.col(PARTITION) == sql.col(_LEFT_PARTITION)) & (sql.col(OFFSET) == sql.col(_LEFT_OFFSET))
        return self._span_rows.of_rows(rows, self._spans, "left").join(left, same, "left")


def _is_away() -> Column:
    return sql.col(_SPAN).isNotNull() & sql.col(_LEFT_OFFSET).isNull()
