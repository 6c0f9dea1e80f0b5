"""The batches of aborted transactions among a partition's offsets, which `read_committed` leaves out. Pure.

A producer has one transaction at a time in a partition: each of its transactional batches from the first offset of an
aborted transaction up to its marker belongs to that transaction. So a batch's header says if it is left out.
"""

from array import array
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from kafscale.protocol.record_batch import BatchHeader

COLUMNS: Final = 3
"""Of a row of the table: producer id, first and last offset."""


class IsolationLevel(StrEnum):
    """Which records a read brings, by Kafka's names (KIP-98).

    Committed: below the last stable offset, without those of aborted transactions. Uncommitted: all published ones.
    """

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Aborted(Protocol):
    """An aborted transaction in a partition. `last_offset`: that of its marker, or any behind its batches."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...


class AbortedRanges(Protocol):
    """The aborted transactions of a partition, or of a part of it."""

    def between(self, first_offset: int, next_offset: int) -> Iterable[Aborted]:
        """Those with an offset from `first_offset` to before `next_offset`."""


class _Row(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


class AbortedBatches:
    """Ranges of offsets by producer. Can be pickled. `table`: its rows, ascending by producer id and first offset."""

    __slots__ = ("table",)

    def __init__(self, aborted: Iterable[Aborted] = ()) -> None:
        rows = sorted((one.producer_id, one.first_offset, one.last_offset) for one in aborted)
        self.table = array("q", (field for row in rows for field in row))

    def __len__(self) -> int:
        """The number of transactions."""
        return len(self.table) // COLUMNS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbortedBatches) and self.table == other.table

    def __hash__(self) -> int:
        return hash(self.table.tobytes())

    def between(self, first_offset: int, next_offset: int) -> Iterable[Aborted]:
        """See `AbortedRanges`."""
        for row in range(0, len(self.table), COLUMNS):
            one = _Row(*self.table[row : row + COLUMNS])
            if one.first_offset < next_offset and one.last_offset >= first_offset:
                yield one

    def has(self, header: BatchHeader) -> bool:
        """True if the batch is of an aborted transaction."""
        if not self.table or not header.is_transactional:
            return False
        table, low, high = self.table, 0, len(self)
        wanted = header.producer_id, header.base_offset
        # The last row that is not behind the batch.
        while low < high:
            middle = (low + high) // 2
            row = COLUMNS * middle
            if (table[row], table[row + 1]) <= wanted:
                low = middle + 1
            else:
                high = middle
        row = COLUMNS * (low - 1)
        return low > 0 and table[row] == wanted[0] and wanted[1] <= table[row + 2]


NONE_ABORTED: Final = AbortedBatches()
