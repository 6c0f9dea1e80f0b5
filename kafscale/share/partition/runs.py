"""Runs: neighbouring records of a share partition that are in the same state."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter


class RecordState(IntEnum):
    """As Kafka numbers them in what it stores; Acquired is in memory only."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


FINAL_STATES = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(frozen=True, slots=True)
class Run:
    """Records from `first` to `last`, both inclusive.

    `delivery_count`: how often they were acquired. `member_id` and `locked_until_ms`: of acquired ones.
    """

    first: int
    last: int
    state: RecordState
    delivery_count: int = 0
    member_id: str = ""
    locked_until_ms: int = 0

    def __len__(self) -> int:
        return self.last - self.first + 1

    def continues(self, before: "Run") -> bool:
        """True if both are one run."""
        return before.last + 1 == self.first and replace(self, first=before.first, last=before.last) == before


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
        self._add(self._runs, run)

    def within(self, first: int, last: int) -> list[Run]:
        """The runs of these offsets, cut to them. What is outside of the range is left out."""
        begin = max(bisect_right(self._runs, first, key=attrgetter("first")) - 1, 0)
        found = []
        for index in range(begin, len(self._runs)):
            run = self._runs[index]
            if run.first > last:
                break
            if run.last >= first:
                found.append(replace(run, first=max(run.first, first), last=min(run.last, last)))
        return found

    def replace(self, changed: list[Run]) -> None:
        """Put these in the place of what the same offsets were. They are in order and do not overlap."""
        if not changed:
            return
        first, last = changed[0].first, changed[-1].last
        assert self.start_offset <= first and last < self.end_offset, f"{first} to {last} are not all here"
        begin = bisect_right(self._runs, first, key=attrgetter("first")) - 1
        end = bisect_right(self._runs, last, key=attrgetter("first"))
        middle: list[Run] = []
        offset = self._runs[begin].first
        for run in changed:
            self._copy(middle, offset, run.first - 1)
            self._add(middle, run)
            offset = run.last + 1
        self._copy(middle, offset, self._runs[end - 1].last)
        # The neighbours may be of the same state now.
        begin, end = max(begin - 1, 0), min(end + 1, len(self._runs))
        together: list[Run] = []
        for run in (*self._before(begin, middle), *middle, *self._after(end, middle)):
            self._add(together, run)
        self._runs[begin:end] = together

    def drop_before(self, offset: int) -> None:
        """Forget the records below the offset."""
        kept = [run for run in self._runs if run.last >= offset]
        if kept and kept[0].first < offset:
            kept[0] = replace(kept[0], first=offset)
        self._runs, self.start_offset = kept, max(self.start_offset, offset)

    def _before(self, begin: int, middle: list[Run]) -> list[Run]:
        return [run for run in self._runs[begin : begin + 1] if run.last < middle[0].first]

    def _after(self, end: int, middle: list[Run]) -> list[Run]:
        return [run for run in self._runs[end - 1 : end] if run.first > middle[-1].last]

    def _copy(self, into: list[Run], first: int, last: int) -> None:
        if first <= last:
            for run in self.within(first, last):
                self._add(into, run)

    @staticmethod
    def _add(runs: list[Run], run: Run) -> None:
        if runs and run.continues(runs[-1]):
            runs[-1] = replace(runs[-1], last=run.last)
        else:
            runs.append(run)
