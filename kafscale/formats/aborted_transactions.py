"""All aborted transactions of a partition, in 32 bytes each: a partition may have many. Pure."""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator

from kafscale.formats.partition_transactions import AbortedTransaction

# Shared by the partitions without any, which are most. Never changed.
_NONE = array("q")


class AbortedTransactions:
    """In the order in which they ended. `aborted` ascend by last offset."""

    __slots__ = ("_first_offsets", "_last_offsets", "_producer_ids", "_stable_offsets")

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._producer_ids = self._first_offsets = self._last_offsets = self._stable_offsets = _NONE
        for one in aborted:
            self._add(one)

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self._at, range(len(self)))

    def _at(self, place: int) -> AbortedTransaction:
        return AbortedTransaction(
            self._producer_ids[place],
            self._first_offsets[place],
            self._last_offsets[place],
            self._stable_offsets[place],
        )

    def _add(self, one: AbortedTransaction) -> None:
        if self._last_offsets is _NONE:
            self._producer_ids, self._first_offsets = array("q"), array("q")
            self._last_offsets, self._stable_offsets = array("q"), array("q")
        self._producer_ids.append(one.producer_id)
        self._first_offsets.append(one.first_offset)
        self._last_offsets.append(one.last_offset)
        self._stable_offsets.append(one.last_stable_offset)

    def add_newer(self, aborted: tuple[AbortedTransaction, ...]) -> None:
        """Add those that ended after all that are known. `aborted` ascend by last offset."""
        known_through = self._last_offsets[-1] if self._last_offsets else -1
        if not aborted or aborted[-1].last_offset <= known_through:
            return
        first = bisect_left(aborted, known_through + 1, key=lambda one: one.last_offset)
        for one in aborted[first:]:
            self._add(one)

    def drop_below(self, offset: int) -> None:
        """Remove those that ended below the offset."""
        if not self._last_offsets or self._last_offsets[0] >= offset:
            return
        end = bisect_left(self._last_offsets, offset)
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets):
            del column[:end]

    def copy(self) -> "AbortedTransactions":
        """The same, for another thread."""
        copied = AbortedTransactions()
        copied._producer_ids, copied._first_offsets = self._producer_ids[:], self._first_offsets[:]
        copied._last_offsets, copied._stable_offsets = self._last_offsets[:], self._stable_offsets[:]
        return copied

    def remove(self, last_offsets: Collection[int]) -> None:
        """Remove those whose markers have these offsets."""
        if not last_offsets:
            return
        kept = [place for place, last in enumerate(self._last_offsets) if last not in last_offsets]
        if len(kept) < len(self):
            self._producer_ids = array("q", [self._producer_ids[place] for place in kept])
            self._first_offsets = array("q", [self._first_offsets[place] for place in kept])
            self._last_offsets = array("q", [self._last_offsets[place] for place in kept])
            self._stable_offsets = array("q", [self._stable_offsets[place] for place in kept])

    def between(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those with records or a marker from `first_offset` on and before `end_offset`, by first offset.

        As Kafka's TransactionIndex.collectAbortedTxns, it ends where all later ones begin at `end_offset` or above.
        """
        start = bisect_left(self._last_offsets, first_offset)
        end = bisect_left(self._stable_offsets, end_offset, lo=start) + 1
        begins = self._first_offsets[start:end]
        found = [place for place, begin in enumerate(begins, start) if begin < end_offset]
        return sorted(map(self._at, found), key=lambda one: one.first_offset)
