"""Reads topic and tables with Spark, counts and hashes both, and finds the rows that differ."""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kafscale.errors import SettingError
from kafscale.lake.ranges import difference
from kafscale.lake.reconciling.comparison import (
    Comparison,
    Difference,
    DifferenceKind,
    Unexpected,
    check_spans,
    joined_runs,
    whole_span_difference,
)
from kafscale.lake.reconciling.spans import PartitionPlan, Span, Standing, plan_partition
from spark_jobs.reconciling.compacted_sides import CompactedSides
from spark_jobs.reconciling.row_hash import OFFSET, PARTITION
from spark_jobs.reconciling.sides import Sides, TopicReader
from spark_jobs.reconciling.table_side import TableSide, open_table_side
from spark_jobs.reconciling.tallies import RowDifferences, Side, SideTallies, SpanRows, row_differences

MOST_SPANS_LOOKED_INTO: Final = 50
MOST_OFFSETS_TOLD: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileOptions:
    """The sides to compare. `except_columns` are excluded; `skips_expired`: so are rows that only the table has."""

    topic: str
    table: str
    dead_letter_table: str
    range_size: int
    except_columns: Collection[str] = ()
    skips_expired: bool = False


class Reconciler:
    """One comparison. `say` takes a line about its progress."""

    def __init__(
        self, spark: SparkSession, options: ReconcileOptions, topic: TopicReader, say: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._options = options
        self._topic = topic
        self._say = say

    def run(self) -> Comparison:
        """Compare.

        Raises `SettingError`, `TableRefusedError`, `ExportStateError`, the stores' and Spark's errors.
        """
        options = self._options
        # The table first: later commits and publications do no harm then. Its dead letters can only be more than its
        # state says, because they are committed first.
        table = open_table_side(self._spark, options.table, options.topic)
        if table is None:
            raise SettingError(f"--table {options.table!r} is not legal: there is no such table")
        dead_letters = open_table_side(self._spark, options.dead_letter_table, options.topic)
        log = self._topic.log()
        comparison = Comparison(
            topic=options.topic,
            table=options.table,
            dead_letter_table=None if dead_letters is None else options.dead_letter_table,
            plans=tuple(plan_partition(table.state, one, options.range_size) for one in log.partitions),
            is_compacted=log.is_compacted,
        )
        if table.state.topic_id and table.state.topic_id != str(log.topic_id):
            refusal = (
                f"the table has an earlier topic of this name (topic id {table.state.topic_id}, now "
                f"{log.topic_id})"
            )
            return replace(comparison, refusal=refusal)
        return self._compare(comparison, table, dead_letters)

    def _compare(
        self, comparison: Comparison, table: TableSide, dead_letters: TableSide | None
    ) -> Comparison:
        spans = [
            span
            for plan in comparison.plans
            for span in plan.spans
            if span.standing is Standing.COMPARED or not self._options.skips_expired
        ]
        starts = {plan.partition: plan.log_start_offset for plan in comparison.plans}
        span_rows = SpanRows(self._spark, spans, self._options.range_size)
        kind = functools.partial(CompactedSides, span_rows=span_rows) if comparison.is_compacted else Sides
        sides = kind(
            self._topic,
            [span for span in spans if span.standing is Standing.COMPARED],
            self._wanted(table, starts),
            None if dead_letters is None else self._wanted(dead_letters, starts),
            self._options.except_columns,
        )
        comparison = replace(comparison, not_compared=sides.not_compared)
        try:
            return self._compare_rows(self._count(comparison, sides, span_rows, spans), sides, span_rows)
        finally:
            if isinstance(sides, CompactedSides):
                sides.close()

    def _wanted(self, side: TableSide, starts: Mapping[int, int]) -> DataFrame | None:
        if side.rows is None or not self._options.skips_expired:
            return side.rows
        expired = sql.lit(False)
        for partition, start in starts.items():
            expired = expired | ((sql.col(PARTITION) == partition) & (sql.col(OFFSET) < start))
        # Rows without coordinates are included: they should not exist.
        return side.rows.where(~expired | expired.isNull())

    def _count(
        self, comparison: Comparison, sides: Sides, span_rows: SpanRows, spans: list[Span]
    ) -> Comparison:
        self._say(f"counting topic {comparison.topic} and table {comparison.table}")
        found = {side: SideTallies() for side in Side} | span_rows.tallies(sides.hashes(), len(sides.columns))
        table, dead_letters = found[Side.TABLE], found[Side.DEAD_LETTERS]
        expired = [
            span
            for span in spans
            if span.standing is Standing.EXPIRED and (span in table.spans or span in dead_letters.spans)
        ]
        stored = sides.stored_hashes() if expired else None
        duplicates = {} if stored is None else span_rows.duplicates(stored, expired)
        away = sides.compacted_away() if isinstance(sides, CompactedSides) else {}
        duplicates |= {span: more for span, (_, more) in away.items() if more}
        return replace(
            comparison,
            checks=check_spans(
                spans,
                found[Side.TOPIC].spans,
                table.spans,
                dead_letters.spans,
                duplicates,
                {span: count for span, (count, _) in away.items()},
            ),
            unexpected=(*table.outside, *_not_ahead(dead_letters.outside, comparison.plans)),
        )

    def _compare_rows(self, counted: Comparison, sides: Sides, span_rows: SpanRows) -> Comparison:
        """Find the rows of the spans that differ."""
        whole = {check.span: one for check in counted.checks if (one := whole_span_difference(check))}
        mixed = [
            check.span for check in counted.differing if check.topic is not None and check.span not in whole
        ]
        spans = mixed[:MOST_SPANS_LOOKED_INTO]
        kinds: dict[DifferenceKind, int] = {}
        for one in whole.values():
            kinds[one.kind] = kinds.get(one.kind, 0) + one.rows
        first: tuple[Difference, ...] = ()
        if spans:
            self._say(f"looking into {len(spans)} ranges that differ")
            found = _rows_that_differ(sides, span_rows, spans)
            first = found.first
            for kind, count in found.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + count
        return replace(
            counted,
            kinds=kinds,
            differences=joined_runs([*whole.values(), *first]),
            spans_not_looked_into=len(mixed) - len(spans),
        )


def _rows_that_differ(sides: Sides, span_rows: SpanRows, spans: list[Span]) -> RowDifferences:
    topic, stored = sides.topic_hashes(spans), sides.stored_hashes()
    assert stored is not None, "a span that was not told as a whole has rows on both sides"
    return row_differences(
        span_rows.of_rows(topic, spans, "inner").drop("span"),
        span_rows.of_rows(stored, spans, "inner").drop("span"),
        sides.columns,
        MOST_OFFSETS_TOLD,
    )


def _not_ahead(outside: Iterable[Unexpected], plans: Iterable[PartitionPlan]) -> Iterator[Unexpected]:
    """Without dead letters whose batch is not committed yet: they are committed before its rows."""
    lag = {plan.partition: plan.lag for plan in plans}
    for one in outside:
        where = ((one.tally.first, one.tally.last + 1),)
        if one.partition is None or difference(where, lag.get(one.partition, ())):
            yield one
