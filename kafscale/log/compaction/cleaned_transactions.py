"""The transactions of a log while a compaction goes through it, as Kafka's CleanedTransactionMetadata. Pure.

The records of an aborted transaction go, wherever they are. A marker may go once nothing else of its transaction is
left: a reader that still had records of an aborted one would take them for committed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kafscale.formats.partition_transactions import BatchKind
from kafscale.protocol.record_batch import BatchHeader


class AbortedRange(NamedTuple):
    """An aborted transaction. `last_offset`: that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class CleanedTransactions:
    """`aborted` ascend by first offset: all that have batches or a marker in what is gone through."""

    __slots__ = ("_aborted", "_committed", "_next", "_ongoing", "_seen")

    def __init__(self, aborted: Sequence[AbortedRange]) -> None:
        self._aborted = aborted
        self._next = 0
        # The aborted transactions that have begun, by producer id, and the producers of which batches were met.
        self._ongoing: dict[int, AbortedRange] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()

    def copy(self) -> "CleanedTransactions":
        """The same, to go on with independently."""
        copied = CleanedTransactions(self._aborted)
        copied._next = self._next
        copied._ongoing = dict(self._ongoing)
        copied._seen = set(self._seen)
        copied._committed = set(self._committed)
        return copied

    def is_aborted(self, header: BatchHeader) -> bool:
        """True if the batch, which is no control batch and follows all earlier ones, is of an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        if self._aborted_of(header) is not None:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def ends(self, header: BatchHeader, kind: BatchKind) -> tuple[bool, AbortedRange | None]:
        """True if nothing is left of the transaction but this marker; and the transaction, if it was aborted."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        aborted = self._aborted_of(header)
        if kind is BatchKind.ABORT:
            self._ongoing.pop(producer_id, None)
            # Of one that is not known as aborted, batches look committed. Where there are any, the marker stays.
            is_met = producer_id in self._seen or producer_id in self._committed
            self._seen.discard(producer_id)
            self._committed.discard(producer_id)
            return not is_met, aborted
        is_committed = producer_id in self._committed
        self._committed.discard(producer_id)
        return not is_committed, None

    def _begin_up_to(self, offset: int) -> None:
        aborted, place = self._aborted, self._next
        while place < len(aborted) and aborted[place].first_offset <= offset:
            self._ongoing[aborted[place].producer_id] = aborted[place]
            place += 1
        self._next = place

    def _aborted_of(self, header: BatchHeader) -> AbortedRange | None:
        """The aborted transaction of the batch's producer at its place."""
        found = self._ongoing.get(header.producer_id)
        if found is not None and found.last_offset < header.base_offset:
            # Its marker was not met: what is gone through begins behind it.
            del self._ongoing[header.producer_id]
            self._seen.discard(header.producer_id)
            return None
        return found
