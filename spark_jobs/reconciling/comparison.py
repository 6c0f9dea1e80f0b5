"""Compares what a topic and its tables have of the same offsets, and says what is different. Pure.

Sums of the rows' hashes do not depend on the rows' order. Where count, ends or sum differ, the rows of the span are
compared one by one, by offset.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from spark_jobs.reconciling.spans import PartitionPlan, Span, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Rows of a span: how many, their first and last offset (-1 for none), the sum of their hashes."""

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
    """One span side by side. `topic` None where the topic's side has expired.

    `duplicates` is known of expired spans, where no comparison would find them: rows beyond the first of an offset.
    """

    span: Span
    topic: Tally | None
    table: Tally
    dead_letters: Tally
    duplicates: int = 0

    @property
    def stored(self) -> Tally:
        """What the table and the dead-letter table have together."""
        return self.table + self.dead_letters

    @property
    def agrees(self) -> bool:
        """Whether there is nothing wrong, as far as it can be told."""
        return self.duplicates == 0 if self.topic is None else self.topic == self.stored


class DifferenceKind(StrEnum):
    """What is wrong with an offset. Values are what people read."""

    MISSING = "missing from the table"
    DUPLICATE = "more than once in the table"
    CHANGED = "not the same"
    EXTRA = "in the table, but not in the topic"
    UNEXPECTED = "in the table, which does not say that it has them"
    BEYOND_END = "exported, the table says, but beyond the log's end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A run of offsets that differ alike, of which `rows` have records.

    `columns`: those that are not the same, for `CHANGED`.
    """

    partition: int
    first: int
    last: int
    kind: DifferenceKind
    columns: tuple[str, ...] = ()
    rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexpected:
    """Rows at offsets that the table does not say it has; `partition` None for rows without coordinates."""

    partition: int | None
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of it. `kinds`: how many offsets of the spans that were looked into differ in which way.

    `differences` are the first of them. `spans_not_looked_into`: differ too, and it was enough already.
    `not_compared`: columns that only one side has, or that were left out on purpose.
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

    @property
    def differing(self) -> tuple[SpanCheck, ...]:
        """The spans with something wrong."""
        return tuple(check for check in self.checks if not check.agrees)

    @property
    def agrees(self) -> bool:
        """Whether topic and tables agree on all that can be compared."""
        beyond = any(plan.beyond_end for plan in self.plans)
        return not (self.refusal or self.differing or self.unexpected or beyond)


def check_spans(
    spans: Iterable[Span],
    topic: Mapping[Span, Tally],
    table: Mapping[Span, Tally],
    dead_letters: Mapping[Span, Tally],
    duplicates: Mapping[Span, int],
) -> tuple[SpanCheck, ...]:
    """Put the sides next to each other; a span that a side has nothing of is not in its mapping."""
    return tuple(
        SpanCheck(
            span=span,
            topic=topic.get(span, NOTHING) if span.standing is Standing.COMPARED else None,
            table=table.get(span, NOTHING),
            dead_letters=dead_letters.get(span, NOTHING),
            duplicates=duplicates.get(span, 0),
        )
        for span in sorted(spans)
    )


def whole_span_difference(check: SpanCheck) -> Difference | None:
    """What differs, where one side has nothing at all of the span, so that no row needs to be looked at."""
    topic, stored = check.topic, check.stored
    if topic is None or bool(topic.count) == bool(stored.count):
        return None
    kind, there = (DifferenceKind.MISSING, topic) if topic.count else (DifferenceKind.EXTRA, stored)
    return Difference(
        partition=check.span.partition, first=there.first, last=there.last, kind=kind, rows=there.count
    )


def joined_runs(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Neighbours that differ alike, as one."""
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


def classify(topic_rows: int, stored_rows: int, *, same: bool) -> DifferenceKind | None:
    """What is wrong with an offset of which the sides have so many rows; `same`: whether their hashes are equal."""
    if topic_rows and not stored_rows:
        return DifferenceKind.MISSING
    if stored_rows > 1:
        return DifferenceKind.DUPLICATE
    if stored_rows and not topic_rows:
        return DifferenceKind.EXTRA
    return None if same else DifferenceKind.CHANGED
