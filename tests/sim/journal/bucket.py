"""The committed entries by objects alone, and by records and journals."""

from collections.abc import Iterator

from kafscale.journal.collection import counted_through
from tests.sim.journal.mistakes import Mistake
from tests.sim.journal.states import FENCE, SEALED, Entry, Home, Kept, Record, Slice, State


class ViolationError(Exception):
    """A promise is broken."""


def slices_of(entry: Entry, partition: int) -> Iterator[Slice]:
    """The entry's slices of a partition."""
    return (one for one in entry.slices if one.partition == partition)


def value_of(state: State, one: Slice) -> int:
    """The value that a reader of the slice gets."""
    if not one.is_own:
        return one.value
    for stored in state.objects:
        if not stored.is_sealed and (stored.partition, stored.base) == (one.partition, one.base):
            return stored.value
    raise ViolationError(f"the object of {one} is not there")


def replayed(state: State, partition: int, record: Record, end: int) -> tuple[Kept, ...] | None:
    """The record's log with what its leader's journal has behind its position, below `end` or the first gap.

    Where no entry is at or below the progress, one was collected, and a late fence may have come in its place. If the
    record is still the newest, the entry had nothing of the partition that is not in the record. None: it is not the
    newest, and must be read again.
    """
    assert record.leader is not None
    log, journal = record.log, state.journals[record.leader]
    is_newest = state.records[partition] == record
    progress = state.progress[record.leader]
    # Entries up to the position may be in flight: it was claimed while others were. Without them nothing counts.
    for sequence in range(min(record.position, progress) + 1, end):
        cell = journal[sequence]
        if not isinstance(cell, Entry) and sequence > progress:
            break
        if sequence <= record.position:
            continue
        if not isinstance(cell, Entry):
            if not is_newest:
                return None
            continue
        for one in slices_of(cell, partition):
            if one.base != len(log):
                if not is_newest:
                    return None
                raise ViolationError(f"{record.leader}/{sequence}: {one} comes after {len(log)} values")
            log = (*log, Kept(value_of(state, one), Home(record.leader, sequence)))
    return log


def truth(state: State, partition: int) -> tuple[int, ...]:
    """The partition's committed values."""
    record = state.records[partition]
    log = record.log
    if record.leader is not None:
        found = replayed(state, partition, record, len(state.journals[record.leader]))
        assert found is not None
        log = found
    return tuple(one.value for one in log)


def counted(state: State, journal: int, mistake: Mistake | None) -> list[Entry]:
    """The journal's committed entries, as far as they are there: what a rebuild may use."""
    cells = state.journals[journal]
    through = counted_through(state.declared(journal))
    if mistake is Mistake.REBUILD_COUNTS_ALL:
        through = len(cells)
    if mistake is Mistake.REBUILD_BELIEVES_LOW_FENCES and FENCE in cells:
        through = min(through, cells.index(FENCE) - 1)
    return [cell for cell in cells[: through + 1] if isinstance(cell, Entry)]


def rebuilt(state: State, partition: int, mistake: Mistake | None) -> tuple[int, ...]:
    """The partition's values from the bucket alone: segments with an index, and slices of entries that count."""
    found: dict[int, int] = {}

    def add(base: int, value: int) -> None:
        if found.setdefault(base, value) != value:
            raise ViolationError(f"the bucket has {found[base]} and {value} at offset {base} of {partition}")

    for stored in state.objects:
        if stored.partition == partition and stored.has_index:
            add(stored.base, stored.value)
    for journal in range(len(state.journals)):
        for entry in counted(state, journal, mistake):
            for one in slices_of(entry, partition):
                add(one.base, value_of(state, one))
    if sorted(found) != list(range(len(found))):
        raise ViolationError(f"the bucket has offsets {sorted(found)} of partition {partition}")
    return tuple(found[base] for base in range(len(found)))


def check(state: State, mistake: Mistake | None) -> None:
    """Acknowledged entries are there, and the bucket alone gives what is committed. Raises `ViolationError`."""
    for partition in range(len(state.records)):
        log = truth(state, partition)
        again = rebuilt(state, partition, mistake)
        if again != log:
            raise ViolationError(f"a rebuild of {partition} gives {again}, committed is {log}")
        for where, offset, value in state.told:
            if where == partition and (offset >= len(log) or log[offset] != value):
                raise ViolationError(f"{value} was told at {partition}/{offset}, the log is {log}")


def counts_by_itself(state: State, partition: int, base: int, value: int) -> bool:
    """True if a segment with index holds the value: no entry is needed for it."""
    return any(
        (stored.partition, stored.base, stored.value, stored.has_index) == (partition, base, value, True)
        for stored in state.objects
    )


def settled(state: State, partition: int, log: tuple[Kept, ...]) -> tuple[Kept, ...]:
    """The log with SEALED for every value that no longer needs its entry."""
    return tuple(
        one._replace(home=SEALED) if counts_by_itself(state, partition, base, one.value) else one
        for base, one in enumerate(log)
    )
