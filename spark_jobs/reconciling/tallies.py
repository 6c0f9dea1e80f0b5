"""Counts and hashes per span, made by Spark in one pass over a side; and the rows of differing spans."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from kafscale.lake.reconciling.comparison import Difference, DifferenceKind, Tally, Unexpected, classify
from kafscale.lake.reconciling.spans import Span
from spark_jobs.reconciling.row_hash import OFFSET, PARTITION, ROW_HASH, column_hash_name, with_row_hash

_SPANS_SCHEMA = "span int, span_partition int, span_range bigint, span_first bigint, span_next bigint"
_LOW_BITS = 0xFFFFFFFF


class Side(StrEnum):
    """The side that rows come from."""

    TOPIC = "topic"
    TABLE = "table"
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTallies:
    """One side by span, and the rows outside of all spans."""

    spans: Mapping[Span, Tally] = field(default_factory=dict)
    outside: tuple[Unexpected, ...] = ()


class SpanRows:
    """The spans in Spark; `range_size`: at whose multiples they were cut."""

    def __init__(self, spark: SparkSession, spans: Sequence[Span], range_size: int) -> None:
        self._spark = spark
        self._spans = spans
        self._range_size = range_size

    def of_rows(self, rows: DataFrame, spans: Iterable[Span], how: str) -> DataFrame:
        """The rows with the number of their span: all rows for a left join, those in one of the spans for an inner.

        `spans`: a subset of the known ones.
        """
        wanted = set(spans)
        numbered = [
            (number, one.partition, one.first // self._range_size, one.first, one.next_offset)
            for number, one in enumerate(self._spans)
            if one in wanted
        ]
        known = sql.broadcast(self._spark.createDataFrame(numbered, _SPANS_SCHEMA))
        offset = sql.col(OFFSET)
        is_inside = (
            (sql.col(PARTITION) == sql.col("span_partition"))
            & (sql.expr(f"{OFFSET} div {self._range_size}L") == sql.col("span_range"))
            & (offset >= sql.col("span_first"))
            & (offset < sql.col("span_next"))
        )
        return rows.join(known, is_inside, how).drop(
            "span_partition", "span_range", "span_first", "span_next"
        )

    def tallies(self, sides: Mapping[Side, DataFrame], column_count: int) -> dict[Side, SideTallies]:
        """Count and hash the rows of all sides, in one pass over each."""
        parts = [
            with_row_hash(hashes, column_count).withColumn("side", sql.lit(side.value))
            for side, hashes in sides.items()
        ]
        if not parts:
            return {}
        rows = self.of_rows(reduce(DataFrame.unionByName, parts), self._spans, "left")
        outside = sql.when(sql.col("span").isNull(), sql.col(PARTITION)).alias("outside")
        row_hash = sql.col(ROW_HASH)
        found = (
            rows.groupBy("side", "span", outside)
            .agg(
                sql.count(sql.lit(1)).alias("rows"),
                sql.min(OFFSET).alias("first"),
                sql.max(OFFSET).alias("last"),
                # Two sums of integers: one of decimals takes several times as long.
                sql.sum(sql.shiftright(row_hash, 32)).alias("high"),
                sql.sum(row_hash.bitwiseAND(sql.lit(_LOW_BITS))).alias("low"),
            )
            .collect()
        )
        return {side: self._side([row for row in found if row["side"] == side.value]) for side in sides}

    def _side(self, found: Iterable[Row]) -> SideTallies:
        rows = sorted(found, key=lambda row: -1 if row["outside"] is None else row["outside"])
        return SideTallies(
            spans={self._spans[row["span"]]: _tally(row) for row in rows if row["span"] is not None},
            outside=tuple(
                Unexpected(partition=row["outside"], tally=_tally(row)) for row in rows if row["span"] is None
            ),
        )

    def duplicates(self, hashes: DataFrame, spans: Sequence[Span]) -> dict[Span, int]:
        """Rows beyond the first of their offset, by span; spans without any are missing."""
        return {span: more for span, (_, more) in self.repeats(hashes, spans).items() if more}

    def repeats(self, hashes: DataFrame, spans: Sequence[Span]) -> dict[Span, tuple[int, int]]:
        """All rows, and those beyond the first of their offset, by span; spans without rows are missing."""
        if not spans:
            return {}
        found = (
            self.of_rows(hashes.select(PARTITION, OFFSET), spans, "inner")
            .groupBy("span", PARTITION, OFFSET)
            .agg(sql.count(sql.lit(1)).alias("rows"))
            .groupBy("span")
            .agg(sql.sum("rows").alias("rows"), sql.sum(sql.col("rows") - 1).alias("more"))
            .collect()
        )
        return {self._spans[row["span"]]: (int(row["rows"]), int(row["more"])) for row in found}


def _tally(row: Row) -> Tally:
    first, last = row["first"], row["last"]
    return Tally(
        count=row["rows"],
        first=-1 if first is None else first,
        last=-1 if last is None else last,
        hash_sum=(row["high"] << 32) + row["low"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDifferences:
    """The result of the comparison row by row: all offsets counted by kind, and the first of them."""

    kinds: Mapping[DifferenceKind, int]
    first: tuple[Difference, ...]


def row_differences(
    topic: DataFrame, stored: DataFrame, columns: Sequence[str], most_offsets: int
) -> RowDifferences:
    """Compare `hashed` rows by their coordinates. Lists the first `most_offsets` that differ one by one."""
    sides = topic.withColumn("of_topic", sql.lit(1)).unionByName(stored.withColumn("of_topic", sql.lit(0)))
    is_topic = sql.col("of_topic") == 1
    names = [column_hash_name(place) for place in range(len(columns))]
    by_offset = sides.groupBy(PARTITION, OFFSET).agg(
        sql.sum("of_topic").alias("topic_rows"),
        sql.sum(1 - sql.col("of_topic")).alias("stored_rows"),
        sql.array_compact(
            sql.array(
                *(_changed(name, column, is_topic) for name, column in zip(names, columns, strict=True))
            )
        ).alias("changed"),
    )
    same = (sql.col("topic_rows") == 1) & (sql.col("stored_rows") == 1) & (sql.size("changed") == 0)
    differing = by_offset.where(~same).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = (
            differing.groupBy(
                sql.least("topic_rows", sql.lit(1)).alias("topic_rows"),
                sql.least("stored_rows", sql.lit(2)).alias("stored_rows"),
            )
            .count()
            .collect()
        )
        first = differing.orderBy(PARTITION, OFFSET).limit(most_offsets).collect()
    finally:
        differing.unpersist()
    kinds: dict[DifferenceKind, int] = {}
    for row in counted:
        kind = _kind(row)
        kinds[kind] = kinds.get(kind, 0) + row["count"]
    return RowDifferences(kinds=kinds, first=tuple(map(_difference, first)))


def _changed(name: str, column: str, is_topic: Column) -> Column:
    """The column's name if the only rows of both sides at an offset have different hashes."""
    in_topic, in_table = (
        sql.max(sql.when(is_topic, sql.col(name))),
        sql.max(sql.when(~is_topic, sql.col(name))),
    )
    return sql.when(in_topic != in_table, sql.lit(column))


def _kind(row: Row) -> DifferenceKind:
    kind = classify(row["topic_rows"], row["stored_rows"], same=False)
    assert kind is not None, "rows that are the same were left out"
    return kind


def _difference(row: Row) -> Difference:
    kind = _kind(row)
    return Difference(
        partition=row[PARTITION],
        first=row[OFFSET],
        last=row[OFFSET],
        kind=kind,
        columns=tuple(row["changed"]) if kind is DifferenceKind.CHANGED else (),
    )
