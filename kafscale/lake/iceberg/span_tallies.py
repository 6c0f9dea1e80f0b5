"""Counts and hashes of rows by span, in one pass over a side; and the rows of spans that differ."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kafscale.lake.iceberg.hashed_rows import NO_PARTITION, HashedRows
from kafscale.lake.reconciling.comparison import Difference, DifferenceKind, Tally, Unexpected, classify
from kafscale.lake.reconciling.spans import Span

_HIGH = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class SpanTallies:
    """Adds up the rows of one side. `spans`: all there are, also those in which the side has no rows."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._by_partition: dict[int, list[Span]] = {}
        for one in sorted(spans, key=lambda span: (span.partition, span.first)):
            self._by_partition.setdefault(one.partition, []).append(one)
        self.spans: dict[Span, Tally] = {}
        self._outside: dict[int, Tally] = {}

    @property
    def outside(self) -> tuple[Unexpected, ...]:
        """The rows outside of all spans, by partition."""
        return tuple(
            Unexpected(partition=None if partition == NO_PARTITION else partition, tally=tally)
            for partition, tally in sorted(self._outside.items())
        )

    def add(self, rows: HashedRows) -> None:
        """Count these rows, too."""
        hashes = rows.hashes()
        for partition in np.unique(rows.partitions).tolist():
            of_partition = rows.partitions == partition
            self._add(partition, rows.offsets[of_partition], hashes[of_partition])

    def _add(self, partition: int, offsets: Any, hashes: Any) -> None:
        spans = self._by_partition.get(partition, [])
        places = span_places(spans, offsets)
        for place in np.unique(places).tolist():
            chosen = places == place
            tally = _tally(offsets[chosen], hashes[chosen])
            if place < 0:
                self._outside[partition] = self._outside.get(partition, Tally()) + tally
            else:
                self.spans[spans[place]] = self.spans.get(spans[place], Tally()) + tally


def span_places(spans: Sequence[Span], offsets: Any) -> Any:
    """The number of each offset's span, -1 if it is in none; the spans of one partition are ascending."""
    if not spans:
        return np.full(len(offsets), -1)
    firsts = np.array([span.first for span in spans], np.int64)
    nexts = np.array([span.next_offset for span in spans], np.int64)
    places = np.searchsorted(firsts, offsets, side="right") - 1
    return np.where((places >= 0) & (offsets < nexts[places]), places, -1)


def _tally(offsets: Any, hashes: Any) -> Tally:
    high, low = int((hashes >> _HIGH).sum()), int((hashes & _LOW).sum())
    return Tally(
        count=len(offsets), first=int(offsets.min()), last=int(offsets.max()), hash_sum=(high << 32) + low
    )


@dataclass(slots=True)
class RowDifferences:
    """All offsets that differ, counted by kind, and the first of them."""

    kinds: dict[DifferenceKind, int] = field(default_factory=dict)
    first: list[Difference] = field(default_factory=list)


class SpanRows:
    """The rows of the spans that differ, by offset: a hash for each column of each of them."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans: dict[int, list[Span]] = {}
        for one in sorted(spans):
            self._spans.setdefault(one.partition, []).append(one)
        self.rows: dict[tuple[int, int], list[tuple[int, ...]]] = {}

    def add(self, rows: HashedRows) -> None:
        """Take those of the rows that are in the spans."""
        for partition, spans in self._spans.items():
            spans = sorted(spans, key=lambda span: span.first)
            chosen = rows.only(rows.partitions == partition)
            chosen = chosen.only(span_places(spans, chosen.offsets) >= 0)
            columns = [column.tolist() for column in chosen.columns]
            for row, offset in enumerate(chosen.offsets.tolist()):
                found = self.rows.setdefault((partition, offset), [])
                found.append(tuple(column[row] for column in columns))


def row_differences(
    topic: SpanRows,
    stored: SpanRows,
    columns: Sequence[str],
    most_offsets: int,
    *,
    is_compacted: bool = False,
) -> RowDifferences:
    """Compare rows by their places. Lists the first `most_offsets` that differ one by one."""
    found = RowDifferences()
    nothing: Sequence[tuple[int, ...]] = ()
    places: Mapping[tuple[int, int], Any] = topic.rows | stored.rows
    for partition, offset in sorted(places):
        ours = topic.rows.get((partition, offset), nothing)
        theirs = stored.rows.get((partition, offset), nothing)
        kind = classify(len(ours), len(theirs), same=list(ours) == list(theirs), is_compacted=is_compacted)
        if kind is None:
            continue
        found.kinds[kind] = found.kinds.get(kind, 0) + 1
        if len(found.first) < most_offsets:
            changed: tuple[str, ...] = ()
            if kind is DifferenceKind.CHANGED:
                pairs = zip(columns, ours[0], theirs[0], strict=True)
                changed = tuple(name for name, mine, other in pairs if mine != other)
            found.first.append(
                Difference(partition=partition, first=offset, last=offset, kind=kind, columns=changed)
            )
    return found
