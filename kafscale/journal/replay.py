"""The slices of a journal behind partitions' records: one reading of its heads serves all partitions."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kafscale.errors import CorruptDataError, KafscaleError
from kafscale.formats.journal_entry import EntryHead, EntrySlice


class EntryMissingError(KafscaleError):
    """An entry is not there although no broker can have collected it."""

    def __init__(self, journal_id: str, sequence: int) -> None:
        super().__init__(
            f"entry {sequence} of journal {journal_id} is gone, and nothing says that it was needless"
        )


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """A slice and its entry. `head_bytes`: where the entry's slices begin. `created_ms`: the entry's."""

    sequence: int
    head_bytes: int
    created_ms: int
    slice: EntrySlice


class Replay:
    """The slices of a journal's committed entries from `first` to below `end`.

    `heads`: the entries that are there, with the size of each head. Up to `progress`, as read from the metadata store
    after the records, entries may have been collected: then every partition whose record is still the newest has what
    it needs. `wants`: whose slices are kept, by topic. Raises `EntryMissingError` for a gap above `progress`.
    """

    def __init__(
        self,
        journal_id: str,
        heads: Mapping[int, tuple[EntryHead, int]],
        *,
        first: int,
        end: int,
        progress: int,
        wants: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.first = first
        self.end = first
        self._journal_id = journal_id
        self._wants = wants
        self._by_partition: dict[tuple[uuid.UUID, int], list[PlacedSlice]] = defaultdict(list)
        self.last_hole: int | None = None
        """The highest collected entry: a record behind whose position it is must be read again, and be unchanged."""
        self.extend(heads, end=end, progress=progress)

    def extend(self, heads: Mapping[int, tuple[EntryHead, int]], *, end: int, progress: int) -> None:
        """Take what follows as well, to below `end`. Raises `EntryMissingError`."""
        hole = self._last_hole(heads, self.end, end, progress)
        for one, placed in self._slices(heads, self.end, end):
            self._by_partition[one].append(placed)
        self.end = max(self.end, end)
        self.last_hole = self.last_hole if hole is None else hole

    def begin_at(self, first: int, heads: Mapping[int, tuple[EntryHead, int]], *, progress: int) -> None:
        """Take what comes before as well, from `first` on. Raises `EntryMissingError`."""
        hole = self._last_hole(heads, first, self.first, progress)
        earlier: dict[tuple[uuid.UUID, int], list[PlacedSlice]] = defaultdict(list)
        for one, placed in self._slices(heads, first, self.first):
            earlier[one].append(placed)
        for one, found in earlier.items():
            self._by_partition[one] = found + self._by_partition[one]
        self.first = min(self.first, first)
        self.last_hole = hole if self.last_hole is None else self.last_hole

    def forget(self, topic_id: uuid.UUID, partition: int, through: int) -> None:
        """Drop the partition's slices up to this entry: every record that is still to come has them."""
        found = self._by_partition.get((topic_id, partition))
        if found and found[0].sequence <= through:
            found[:] = [one for one in found if one.sequence > through]

    def _last_hole(
        self, heads: Mapping[int, tuple[EntryHead, int]], first: int, end: int, progress: int
    ) -> int | None:
        for sequence in range(max(first, progress + 1), end):
            if sequence not in heads:
                raise EntryMissingError(self._journal_id, sequence)
        sequence = end - 1
        while sequence >= first and sequence in heads:
            sequence -= 1
        return sequence if sequence >= first else None

    def _slices(
        self, heads: Mapping[int, tuple[EntryHead, int]], first: int, end: int
    ) -> Iterator[tuple[tuple[uuid.UUID, int], PlacedSlice]]:
        for sequence in sorted(heads):
            if first <= sequence < end:
                head, head_bytes = heads[sequence]
                for one in head.slices:
                    if self._wants(one.topic):
                        placed = PlacedSlice(sequence, head_bytes, head.created_ms, one)
                        yield (one.topic_id, one.partition), placed

    def partitions(self) -> Iterable[tuple[uuid.UUID, int]]:
        """Every partition that has a slice in one of the entries."""
        return self._by_partition.keys()

    def behind(
        self, topic_id: uuid.UUID, partition: int, position: int, log_end_offset: int
    ) -> tuple[PlacedSlice, ...]:
        """The partition's slices behind a record with that position and end, oldest first.

        Raises `CorruptDataError` if they do not follow it without a gap.
        """
        found = tuple(
            one for one in self._by_partition.get((topic_id, partition), ()) if one.sequence > position
        )
        for one in found:
            if one.slice.base_offset != log_end_offset:
                raise CorruptDataError(
                    f"entry {one.sequence} of journal {self._journal_id}",
                    f"the slice of {one.slice.topic}-{partition} begins at offset {one.slice.base_offset}, "
                    f"the log before it ends at {log_end_offset}",
                )
            log_end_offset = one.slice.last_offset + 1
        return found
