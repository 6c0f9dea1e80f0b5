"""Runs: neighbouring records of a share partition that are in the same state."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Final, NamedTuple


class RecordState(IntEnum):
    """As Kafka numbers them in what it stores; Acquired is in memory only."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


FINAL_STATES = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


_FIRST: Final = itemgetter(0)


class Run(NamedTuple):
    """Records from `first` to `last`, both inclusive. A tuple, because very many are made.

    `delivery_count`: how often they were acquired. `member_id` and `locked_until_ms`: of acquired ones.
    `available_from`: of available ones, the version that must be durable before they are given again.
    """

    first: int
    last: int
    state: RecordState
    delivery_count: int = 0
    member_id: str = ""
    locked_until_ms: int = 0
    available_from: int = 0

    @property
    def records(self) -> int:
        """How many."""
        return self.last - self.first + 1

    def continues(self, before: "Run") -> bool:
        """True if both are one run."""
        # Neighbours differ in their state, nearly always.
        return before[2] == self[2] and before[1] + 1 == self[0] and before[2:] == self[2:]

    def cut(self, first: int, last: int) -> "Run":
        """The part of it within these offsets, some of which it has."""
        if first <= self.first and self.last <= last:
            return self
        return Run(max(self.first, first), min(self.last, last), *self[2:])


def records_of(runs: Iterable[Run]) -> int:
    """How many records they have together."""
    return sum(last - first + 1 for first, last, *_ in runs)


class Runs:
    """The records of a range of offsets, as runs in order and without holes. Neighbours always differ."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self._runs: list[Run] = []

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self._runs[-1].last + 1 if self._runs else self.start_offset

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def append(self, run: Run) -> None:
        """Add records at the end."""
        assert run.first == self.end_offset, f"{run} does not begin at {self.end_offset}"
        add(self._runs, run)

    def within(self, first: int, last: int) -> list[Run]:
        """The runs of these offsets, cut to them. What is outside of the range is left out."""
        if not self._runs or last < first:
            return []
        found: list[Run] = []
        _copy(self._runs, max(self._index_of(first), 0), found, first, last)
        return found

    def replace(self, changed: Sequence[Run]) -> None:
        """Put these in the place of what the same offsets were. They are in order and do not overlap."""
        if not changed:
            return
        first, last = changed[0].first, changed[-1].last
        assert self.start_offset <= first and last < self.end_offset, f"{first} to {last} are not all here"
        # With both neighbours, which may be of the same state now.
        begin, end = max(self._index_of(first) - 1, 0), self._index_of(last) + 2
        before = self._runs[begin:end]
        together: list[Run] = []
        index, offset = 0, before[0].first
        for run in changed:
            index = _copy(before, index, together, offset, run.first - 1)
            add(together, run)
            offset = run.last + 1
        _copy(before, index, together, offset, before[-1].last)
        self._runs[begin:end] = together

    def drop_before(self, offset: int) -> None:
        """Forget the records below the offset."""
        del self._runs[: max(self._index_of(offset), 0)]
        if self._runs and self._runs[0].last < offset:
            del self._runs[0]
        if self._runs:
            self._runs[0] = self._runs[0].cut(offset, self._runs[0].last)
        self.start_offset = max(self.start_offset, offset)

    def _index_of(self, offset: int) -> int:
        """The place of the run that has the offset; -1 for offsets before all of them."""
        return bisect_right(self._runs, offset, key=_FIRST) - 1


def _copy(runs: Sequence[Run], begin: int, into: list[Run], first: int, last: int) -> int:
    """Add the runs of these offsets, looking for them from this place on; returns the place of the next offset."""
    for index in range(begin, len(runs)):
        run = runs[index]
        if run[0] > last:
            return index
        if run[1] < first:
            continue
        if first <= last:
            add(into, run.cut(first, last))
        if run[1] > last:
            return index
    return len(runs)


def add(runs: list[Run], run: Run) -> None:
    """Add records at the end of the list; they go on with its last run if they are of the same state."""
    if runs and run.continues(runs[-1]):
        runs[-1] = Run(runs[-1].first, *run[1:])
    else:
        runs.append(run)
