"""A state of the model: journals, objects, records, brokers.

A journal is a row of cells, written by put-if-absent only. What was sent once may land at any later moment, also
after its cell was collected. A value is one record; it stands for a batch.
"""

from typing import Any, Literal, NamedTuple

from kafscale.formats.journal_record import JournalRecord
from kafscale.journal.ending import Ending


class Slice(NamedTuple):
    """A value of a partition. `is_own`: it lies in an object of its own, and the entry only names it."""

    partition: int
    base: int
    value: int
    is_own: bool = False


class Entry(NamedTuple):
    """`through`: the newest sequence that the broker knew to be committed when it sealed the entry."""

    slices: tuple[Slice, ...]
    through: int


class Fence(NamedTuple):
    """Another broker's writes to end a journal."""


FENCE = Fence()
Cell = Entry | Fence | None


class Home(NamedTuple):
    """The entry that a record needs for a value: it holds the value, or it alone says that its object counts."""

    journal: int
    sequence: int


SEALED: Literal["sealed"] = "sealed"


class Kept(NamedTuple):
    """A value in a record. `home` is SEALED for one whose object counts by itself."""

    value: int
    home: Home | Literal["sealed"]


class Record(NamedTuple):
    """A partition's record: what is behind `position` is in the leader's journal."""

    leader: int | None
    log: tuple[Kept, ...]
    position: int
    revision: int


class Object(NamedTuple):
    """A segment of its own. With its index it counts by itself, without only if an entry that counts names it."""

    partition: int
    base: int
    value: int
    is_sealed: bool  # under the key of a sealing, which is none of the papers'
    has_index: bool


class Sent(NamedTuple):
    """An entry in flight."""

    sequence: int
    entry: Entry
    is_there: bool


class Lead(NamedTuple):
    """A partition that a broker leads: its record as the broker wrote it last, and the whole log."""

    known: Record
    log: tuple[Kept, ...]


class Pursuit(NamedTuple):
    """A broker's way to take a partition over: it ends `journal`, then replays it."""

    partition: int
    journal: int
    ending: Ending
    before: Record


class Claim(NamedTuple):
    """A claim whose answer is awaited."""

    partition: int
    compared: int
    record: Record


class Broker(NamedTuple):
    """`leads`: by partition. `made`: values made so far, by partition. `is_over`: it found its journal ended."""

    is_over: bool
    leads: tuple[Lead | None, ...]
    next_sequence: int
    sent: tuple[Sent, ...]
    pursuit: Pursuit | None
    claim: Claim | None
    made: tuple[int, ...]

    @property
    def done(self) -> int:
        """The newest sequence that it knows to be committed."""
        return self.next_sequence - 1 - len(self.sent)


class State(NamedTuple):
    """`told`: (partition, offset, value) that was acknowledged or read. `reader`: partition 0's record as read."""

    journals: tuple[tuple[Cell, ...], ...]
    progress: tuple[int, ...]
    ended: tuple[int | None, ...]
    records: tuple[Record, ...]
    brokers: tuple[Broker, ...]
    objects: frozenset[Object]
    flying: frozenset[Any]  # (journal, sequence, cell) and objects that may land
    told: frozenset[tuple[int, int, int]]
    reader: Record | None

    def journal_record(self, journal: int) -> JournalRecord:
        """The journal's record in the metadata store."""
        return JournalRecord(broker_id=journal, progress=self.progress[journal], ended_at=self.ended[journal])

    def declared(self, journal: int) -> dict[int, int]:
        """The sequences that entries in the bucket declare to be committed."""
        cells = enumerate(self.journals[journal])
        return {sequence: cell.through for sequence, cell in cells if isinstance(cell, Entry)}


class Scope(NamedTuple):
    """How much there is. `values`: how many each broker makes for each partition."""

    cells: int
    values: tuple[int, ...]
    partitions: int = 1
    in_flight: int = 2
    own_objects: bool = False
    seals: bool = False
    hand_overs: int = 1
    reads_elsewhere: bool = True


def replaced(items: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """The tuple with another item."""
    return (*items[:index], value, *items[index + 1 :])


def first_state(scope: Scope) -> State:
    """Broker 0 leads all partitions; nothing is written."""
    brokers = len(scope.values)
    nothing = (None,) * scope.partitions
    made = (0,) * scope.partitions
    record = Record(0, (), -1, 1)
    idle = Broker(False, nothing, 0, (), None, None, made)
    leader = idle._replace(leads=(Lead(record, ()),) * scope.partitions)
    return State(
        journals=((None,) * (scope.cells + 1),) * brokers,
        progress=(-1,) * brokers,
        ended=(None,) * brokers,
        records=(record,) * scope.partitions,
        brokers=(leader, *(idle,) * (brokers - 1)),
        objects=frozenset(),
        flying=frozenset(),
        told=frozenset(),
        reader=None,
    )
