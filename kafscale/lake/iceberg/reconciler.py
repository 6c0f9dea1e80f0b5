"""Compares a topic with its tables in one process: counts and hashes both, and finds the rows that differ."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from kafscale.errors import SettingError
from kafscale.lake.export_mode import check_reconcilable
from kafscale.lake.iceberg.hashed_rows import HashedRows, StoredSide, hashed
from kafscale.lake.iceberg.span_tallies import (
    RowDifferences,
    SpanRows,
    SpanTallies,
    row_differences,
    span_places,
)
from kafscale.lake.iceberg.tables import TableStore
from kafscale.lake.iceberg.topic_offsets import TopicOffsets
from kafscale.lake.iceberg.topic_table import TopicTables
from kafscale.lake.ranges import Ranges, difference, union
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
from kafscale.lake.routes import property_of as routes_property
from kafscale.reader.topic_state import TopicLog

MOST_SPANS_LOOKED_INTO: Final = 50
MOST_OFFSETS_TOLD: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSide:
    """The topic: its log as it is now, and its records at some offsets, by partition."""

    log: Callable[[], TopicLog]
    records: Callable[[Mapping[int, Ranges]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileOptions:
    """`except_columns` are excluded; `skips_expired`: so are rows that only the table has."""

    range_size: int
    except_columns: Sequence[str] = ()
    skips_expired: bool = False


class Reconciler:
    """One comparison. `say` takes a line about its progress, as often as there is one."""

    def __init__(
        self,
        store: TableStore,
        topic: str,
        tables: TopicTables,
        options: ReconcileOptions,
        side: TopicSide,
        say: Callable[[str], None],
    ) -> None:
        self._store = store
        self._topic = topic
        self._tables = tables
        self._options = options
        self._side = side
        self._say = say

    def run(self) -> Comparison:
        """Compare. Raises `SettingError`, `LakeError`, `ExportStateError`, and the stores' errors."""
        # The table first: later commits and publications do no harm then. Its dead letters can only be more than its
        # state says, because they are committed first.
        table = self._open(self._tables.rows)
        name = self._tables.shown(self._tables.rows)
        if table is None:
            raise SettingError(f"there is no table {name}: correct --to, --table or --catalog")
        letters = self._open(self._tables.dead_letters)
        log = self._side.log()
        comparison = Comparison(
            topic=self._topic,
            table=name,
            dead_letter_table=None if letters is None else self._tables.shown(self._tables.dead_letters),
            plans=tuple(plan_partition(table.state, one, self._options.range_size) for one in log.partitions),
            not_compared=table.not_compared,
            is_compacted=log.is_compacted,
        )
        if table.state.topic_id and table.state.topic_id != str(log.topic_id):
            refusal = (
                f"the table has an earlier topic of this name (topic id {table.state.topic_id}, now "
                f"{log.topic_id})"
            )
            return replace(comparison, refusal=refusal)
        return _Comparing(comparison, table, letters, self._options, self._side, self._say).run()

    def _open(self, identifier: tuple[str, ...]) -> StoredSide | None:
        found = self._store.find(identifier)
        if found is not None and routes_property(self._topic) in found.properties:
            raise SettingError(
                f"table {self._tables.shown(identifier)} has routes of topic {self._topic!r} into other tables, and "
                "a reconciliation compares one table: compare counts with SQL, over all of them"
            )
        if found is not None:
            check_reconcilable(self._tables.shown(identifier), self._topic, found.properties)
        return None if found is None else StoredSide(found, self._topic, self._options.except_columns)


class _Comparing:
    def __init__(
        self,
        comparison: Comparison,
        table: StoredSide,
        letters: StoredSide | None,
        options: ReconcileOptions,
        side: TopicSide,
        say: Callable[[str], None],
    ) -> None:
        self._comparison = comparison
        self._table = table
        self._letters = letters
        self._side = side
        self._say = say
        self._columns = table.columns
        self._starts = {plan.partition: plan.log_start_offset for plan in comparison.plans}
        self._skips_expired = options.skips_expired
        self._spans = [
            span
            for plan in comparison.plans
            for span in plan.spans
            if span.standing is Standing.COMPARED or not options.skips_expired
        ]

    def run(self) -> Comparison:
        compared = [span for span in self._spans if span.standing is Standing.COMPARED]
        topic, table, letters = (SpanTallies(self._spans) for _ in range(3))
        left = TopicOffsets(compared) if self._comparison.is_compacted else None
        for rows in self._topic_rows(compared):
            topic.add(rows)
            if left is not None:
                left.add(rows)
        repeated = _Repeated([span for span in self._spans if span.standing is Standing.EXPIRED])
        away = _Repeated(compared)
        for tallies, rows in self._stored_rows(table, letters):
            there = rows
            if left is not None:
                is_away = left.misses(rows)
                away.add(rows.only(is_away))
                there = rows.only(~is_away)
            tallies.add(there)
            repeated.add(there)
        counted = replace(
            self._comparison,
            checks=check_spans(
                self._spans,
                topic.spans,
                table.spans,
                letters.spans,
                repeated.duplicates() | away.duplicates(),
                away.counts(),
            ),
            unexpected=(*table.outside, *_not_ahead(letters.outside, self._comparison.plans)),
        )
        return self._looked_into(counted)

    def _topic_rows(self, spans: Iterable[Span]) -> Iterator[HashedRows]:
        ranges: dict[int, list[tuple[int, int]]] = {}
        for span in spans:
            ranges.setdefault(span.partition, []).append((span.first, span.next_offset))
        count = 0
        for batch in self._side.records({partition: union(some) for partition, some in ranges.items()}):
            count += batch.num_rows
            self._say(f"{self._comparison.topic}: {count:,} records of the topic read")
            yield hashed(batch, self._columns)

    def _stored_rows(
        self, table: SpanTallies, letters: SpanTallies
    ) -> Iterator[tuple[SpanTallies, HashedRows]]:
        count = 0
        for side, tallies in ((self._table, table), (self._letters, letters)):
            for rows in side.rows(self._columns) if side is not None else ():
                wanted = self._without_expired(rows) if self._skips_expired else rows
                count += len(wanted.offsets)
                self._say(f"{self._comparison.topic}: {count:,} rows of the tables read")
                yield tallies, wanted

    def _without_expired(self, rows: HashedRows) -> HashedRows:
        expired = np.zeros(len(rows.offsets), np.bool_)
        for partition, start in self._starts.items():
            expired |= (rows.partitions == partition) & (rows.offsets < start)
        return rows.only(~expired)

    def _looked_into(self, counted: Comparison) -> Comparison:
        """Find the rows of the spans that differ."""
        whole = {check.span: one for check in counted.checks if (one := whole_span_difference(check))}
        mixed = [
            check.span for check in counted.differing if check.topic is not None and check.span not in whole
        ]
        spans = mixed[:MOST_SPANS_LOOKED_INTO]
        kinds: dict[DifferenceKind, int] = {}
        for one in whole.values():
            kinds[one.kind] = kinds.get(one.kind, 0) + one.rows
        first: list[Difference] = []
        if spans:
            found = self._rows_that_differ(spans)
            first = found.first
            for kind, count in found.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + count
        return replace(
            counted,
            kinds=kinds,
            differences=joined_runs([*whole.values(), *first]),
            spans_not_looked_into=len(mixed) - len(spans),
        )

    def _rows_that_differ(self, spans: Sequence[Span]) -> RowDifferences:
        topic, stored = SpanRows(spans), SpanRows(spans)
        for rows in self._topic_rows(spans):
            topic.add(rows)
        wanted = " OR ".join(
            f"(partition = {one.partition} AND offset >= {one.first} AND offset < {one.next_offset})"
            for one in spans
        )
        for side in (self._table, self._letters):
            for rows in side.rows(self._columns, f"({wanted})") if side is not None else ():
                stored.add(rows)
        is_compacted = self._comparison.is_compacted
        return row_differences(topic, stored, self._columns, MOST_OFFSETS_TOLD, is_compacted=is_compacted)


class _Repeated:
    """Offsets that the topic has no longer, and that more than one row has: no comparison would find them."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans: dict[int, list[Span]] = {}
        for one in sorted(spans, key=lambda span: (span.partition, span.first)):
            self._spans.setdefault(one.partition, []).append(one)
        self._seen: dict[Span, list[np.ndarray]] = {}

    def add(self, rows: HashedRows) -> None:
        for partition, spans in self._spans.items():
            offsets = rows.offsets[rows.partitions == partition]
            places = span_places(spans, offsets)
            for place in np.unique(places[places >= 0]).tolist():
                self._seen.setdefault(spans[place], []).append(offsets[places == place])

    def counts(self) -> dict[Span, int]:
        """All rows, by span; spans without any are missing."""
        return {span: sum(map(len, parts)) for span, parts in self._seen.items()}

    def duplicates(self) -> dict[Span, int]:
        """Rows beyond the first of their offset, by span; spans without any are missing."""
        found = {}
        for span, parts in self._seen.items():
            offsets = np.concatenate(parts)
            if more := len(offsets) - len(np.unique(offsets)):
                found[span] = more
        return found


def _not_ahead(outside: Iterable[Unexpected], plans: Iterable[PartitionPlan]) -> Iterator[Unexpected]:
    """Without dead letters whose batch is not committed yet: they are committed before its rows."""
    lag = {plan.partition: plan.lag for plan in plans}
    for one in outside:
        where = ((one.tally.first, one.tally.last + 1),)
        if one.partition is None or difference(where, lag.get(one.partition, ())):
            yield one
