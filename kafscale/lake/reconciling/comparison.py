"""Compares the rows that a topic and its tables have of the same offsets, and classifies differences. Pure.

Sums of the rows' hashes do not depend on the rows' order. Where count, ends or sum differ, the rows of the span are
compared one by one, by offset.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from kafscale.lake.reconciling.spans import PartitionPlan, Span, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Rows of a span: their number, first and last offset (-1 for none), and the sum of their hashes."""

    count: int = 0
    first: int = -1
    last: int = -1
    hash_sum: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        if not self.count or not other.count:
            return self if self.count else other
        return Tally(
            count=self.count + other.count,
            first=min(self.first, other.first),
            last=max(self.last, other.last),
            hash_sum=self.hash_sum + other.hash_sum,
        )


NOTHING = Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCheck:
    """One span side by side. `topic` is None if the topic's records have expired.

    `compacted_away`: rows of both tables whose records a compacted topic has no longer, for any reason; they are no
    difference, and not in `table` and `dead_letters`. `duplicates`: rows beyond the first of an offset, among those
    of expired spans and those that were compacted away, where no comparison would find them.
    """

    span: Span
    topic: Tally | None
    table: Tally
    dead_letters: Tally
    duplicates: int = 0
    compacted_away: int = 0

    @property
    def stored(self) -> Tally:
        """The rows of the table and the dead-letter table together."""
        return self.table + self.dead_letters

    @property
    def agrees(self) -> bool:
        """True if no difference is known."""
        return self.duplicates == 0 and self.topic in (None, self.stored)


class DifferenceKind(StrEnum):
    """A kind of difference at an offset. People read the values."""

    MISSING = "missing from the table"
    DUPLICATE = "more than once in the table"
    CHANGED = "not the same"
    EXTRA = "in the table, but not in the topic"
    UNEXPECTED = "in the table, which does not say that it has them"
    BEYOND_END = "exported, the table says, but beyond the log's end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Consecutive offsets with the same difference, of which `rows` have records.

    `columns`: the ones that differ, for `CHANGED`.
    """

    partition: int
    first: int
    last: int
    kind: DifferenceKind
    columns: tuple[str, ...] = ()
    rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexpected:
    """Rows at offsets that the table's state does not include; `partition` None for rows without coordinates."""

    partition: int | None
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result. `kinds`: the number of different offsets in the compared spans, by kind.

    `differences`: the first of them. `spans_not_looked_into`: spans that differ, too, after the limit was reached.
    `not_compared`: columns that only one side has, or that an option excludes. `is_compacted`: of the topic.
    """

    topic: str
    table: str
    dead_letter_table: str | None
    plans: tuple[PartitionPlan, ...]
    checks: tuple[SpanCheck, ...] = ()
    unexpected: tuple[Unexpected, ...] = ()
    kinds: Mapping[DifferenceKind, int] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    spans_not_looked_into: int = 0
    not_compared: tuple[str, ...] = ()
    refusal: str = ""
    is_compacted: bool = False

    @property
    def compacted_away(self) -> int:
        """The rows whose records a compacted topic has no longer."""
        return sum(check.compacted_away for check in self.checks)

    @property
    def differing(self) -> tuple[SpanCheck, ...]:
        """The spans with a difference."""
        return tuple(check for check in self.checks if not check.agrees)

    @property
    def agrees(self) -> bool:
        """True if topic and tables agree on everything that can be compared."""
        beyond = any(plan.beyond_end for plan in self.plans)
        return not (self.refusal or self.differing or self.unexpected or beyond)


def check_spans(
    spans: Iterable[Span],
    topic: Mapping[Span, Tally],
    table: Mapping[Span, Tally],
    dead_letters: Mapping[Span, Tally],
    duplicates: Mapping[Span, int],
    compacted_away: Mapping[Span, int] = MappingProxyType({}),
) -> tuple[SpanCheck, ...]:
    """Pair the sides; a span without rows on a side is not in its mapping."""
    return tuple(
        SpanCheck(
            span=span,
            topic=topic.get(span, NOTHING) if span.standing is Standing.COMPARED else None,
            table=table.get(span, NOTHING),
            dead_letters=dead_letters.get(span, NOTHING),
            duplicates=duplicates.get(span, 0),
            compacted_away=compacted_away.get(span, 0),
        )
        for span in sorted(spans)
    )


def whole_span_difference(check: SpanCheck) -> Difference | None:
    """The difference if one side has no rows of the span at all, so that no row must be read; else None."""
    topic, stored = check.topic, check.stored
    if topic is None or bool(topic.count) == bool(stored.count):
        return None
    kind, there = (DifferenceKind.MISSING, topic) if topic.count else (DifferenceKind.EXTRA, stored)
    return Difference(
        partition=check.span.partition, first=there.first, last=there.last, kind=kind, rows=there.count
    )


def joined_runs(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Neighbours with the same difference, joined."""
    joined: list[Difference] = []
    for one in sorted(differences, key=lambda each: (each.partition, each.first)):
        last = joined[-1] if joined else None
        if (
            last is not None
            and (last.partition, last.kind, last.columns) == (one.partition, one.kind, one.columns)
            and one.first == last.last + 1
        ):
            joined[-1] = replace(last, last=one.last, rows=last.rows + one.rows)
        else:
            joined.append(one)
    return tuple(joined)


def classify(
    topic_rows: int, stored_rows: int, *, same: bool, is_compacted: bool = False
) -> DifferenceKind | None:
    """The difference at an offset with these numbers of rows; `same`: True if their hashes are equal.

    `is_compacted`: the topic may have lost the record since it was exported; `SpanCheck` counts such rows.
    """
    if is_compacted and not topic_rows:
        return None
    if topic_rows and not stored_rows:
        return DifferenceKind.MISSING
    if stored_rows > 1:
        return DifferenceKind.DUPLICATE
    if stored_rows and not topic_rows:
        return DifferenceKind.EXTRA
    return None if same else DifferenceKind.CHANGED
