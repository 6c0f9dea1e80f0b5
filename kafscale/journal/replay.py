"""What a journal holds behind partitions' records: one reading of its heads serves all partitions."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafscale.errors import CorruptDataError, KafscaleError
from kafscale.formats.journal_entry import EntryHead, EntrySlice


class EntryMissingError(KafscaleError):
    """An entry is not there although nobody can have collected it."""

    def __init__(self, journal_id: str, sequence: int) -> None:
        super().__init__(
            f"entry {sequence} of journal {journal_id} is gone, and nothing says that it was needless"
        )


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """A slice and the entry that holds it. `head_bytes`: where the entry's slices begin."""

    sequence: int
    head_bytes: int
    slice: EntrySlice


class Replay:
    """The slices of a journal's committed entries from `first` to below `end`.

    `heads`: the entries that are there, with the size of each head. Up to `progress`, as read from the metadata store
    after the records, entries may have been collected: then every partition whose record is still the newest has what
    it needs. Raises `EntryMissingError` for a gap above it.
    """

    def __init__(
        self,
        journal_id: str,
        heads: Mapping[int, tuple[EntryHead, int]],
        *,
        first: int,
        end: int,
        progress: int,
    ) -> None:
        self._journal_id = journal_id
        self._by_partition: dict[tuple[uuid.UUID, int], list[PlacedSlice]] = defaultdict(list)
        self.first_hole: int | None = None
        """The lowest collected entry: a record behind whose position it is must be read again, and be unchanged."""
        for sequence in range(first, end):
            found = heads.get(sequence)
            if found is None:
                if sequence > progress:
                    raise EntryMissingError(journal_id, sequence)
                if self.first_hole is None:
                    self.first_hole = sequence
                continue
            head, head_bytes = found
            for one in head.slices:
                self._by_partition[one.topic_id, one.partition].append(PlacedSlice(sequence, head_bytes, one))

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
