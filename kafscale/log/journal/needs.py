"""Which entries of journals and gathered objects the records of partitions need. Pure; driven by collector.py."""

import math
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from kafscale.formats.journal_keys import EntryKey, is_unsealed_key, parse_entry_key, parse_gathered_key
from kafscale.formats.partition_record import PartitionRecord

Place = tuple[uuid.UUID, int]
"""A topic's id and a partition's number."""


@dataclass(frozen=True, slots=True)
class EntrySummary:
    """An entry as collection sees it: what it declares to be committed, and whose slices it has."""

    committed_through: int
    places: Set[Place]


class Needs:
    """Of partition records, as they were read after everything else."""

    def __init__(self) -> None:
        self._named: dict[str, set[int]] = defaultdict(set)
        self._positions: dict[str, dict[Place, int]] = defaultdict(dict)
        self._gathered: set[EntryKey] = set()

    def add(self, index: int, record: PartitionRecord) -> None:
        """Count what the record of the partition `index` of its topic needs."""
        for reference in record.segments:
            if not is_unsealed_key(reference.object_key):
                continue
            entry = parse_entry_key(reference.object_key)
            if entry is not None:
                self._named[entry.journal_id].add(entry.sequence)
            gathered = parse_gathered_key(reference.object_key)
            if gathered is not None:
                self._gathered.add(gathered)
        position = record.journal
        if position is not None:
            self._positions[position.journal_id][position.topic_id, index] = position.sequence

    def is_named(self, journal_id: str) -> bool:
        """True if a record needs anything of the journal, or goes on in it."""
        return journal_id in self._named or journal_id in self._positions

    def needs_gathered(self, key: EntryKey) -> bool:
        """True if a record names the gathered object."""
        return key in self._gathered

    def is_position(self, journal_id: str) -> bool:
        """True if the leader of a partition writes the journal."""
        return journal_id in self._positions

    def named(self, journal_id: str) -> Set[int]:
        """The entries that records name."""
        return self._named.get(journal_id, frozenset())

    def kept_from(self, journal_id: str, but: Set[Place] = frozenset()) -> float:
        """The first entry that may have a slice behind the position of a record, infinity for none.

        Coarser than `of`, which needs what is in the entries. `but`: partitions that are not looked at.
        """
        positions = self._positions.get(journal_id, {})
        return min((at + 1 for place, at in positions.items() if place not in but), default=math.inf)

    def of(self, journal_id: str, entries: Mapping[int, EntrySummary]) -> Iterator[int]:
        """The entries that are needed: named by a record, or with a slice behind its position."""
        yield from self._named.get(journal_id, ())
        positions = self._positions.get(journal_id)
        if positions:
            for sequence, entry in entries.items():
                if _is_behind(sequence, entry.places, positions):
                    yield sequence


def _is_behind(sequence: int, places: Iterable[Place], positions: Mapping[Place, int]) -> bool:
    return any(positions.get(place, sequence) < sequence for place in places)
