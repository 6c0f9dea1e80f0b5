"""A partition's transactions as its readers must know them: which are open, and which were aborted (KIP-98). Pure.

Stored format: docs/format/partition-record.md. All integers are big-endian.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from struct import Struct, error
from typing import Final, NamedTuple

from kafscale.errors import CorruptDataError

_COUNTS: Final = Struct(">qII")
_OPEN: Final = Struct(">qhq")
_ABORTED: Final = Struct(">qqqq")


class BatchKind(IntEnum):
    """The kinds of a producer's batches, as transactions see them. Part of the stored format."""

    PLAIN = 0
    TRANSACTIONAL = 1
    ABORT = 2
    COMMIT = 3

    @property
    def is_marker(self) -> bool:
        """True if it ends a transaction."""
        return self >= BatchKind.ABORT


class TransactionEvent(NamedTuple):
    """A batch that begins, continues or ends a producer's transaction in a partition. `offset`: its first."""

    kind: BatchKind
    producer_id: int
    producer_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has records in the partition, and no marker yet."""

    producer_id: int
    producer_epoch: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction. `last_offset` is that of its marker.

    `last_stable_offset`: that of the partition right after the marker. Later transactions begin there or above.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class PartitionTransactions:
    """The published transactions of a partition.

    `open` ascend by first offset, `aborted` by last offset. Those that ended below `aborted_from` are not in
    `aborted`, but in the checkpoint.
    """

    open: tuple[OpenTransaction, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    aborted_from: int = 0

    def __bool__(self) -> bool:
        return bool(self.open or self.aborted or self.aborted_from)

    def last_stable_offset(self, log_start_offset: int, log_end_offset: int) -> int:
        """The end of what `read_committed` consumers see: all below it is decided."""
        return max(self.open[0].first_offset, log_start_offset) if self.open else log_end_offset


NO_TRANSACTIONS: Final = PartitionTransactions()


def after_events(
    transactions: PartitionTransactions, events: Iterable[TransactionEvent]
) -> PartitionTransactions:
    """The transactions once these batches are published, too, in this order."""
    opened: dict[int, OpenTransaction] | None = None
    aborted: list[AbortedTransaction] = []
    for kind, producer_id, producer_epoch, offset in events:
        if kind is BatchKind.PLAIN:
            continue
        if opened is None:
            opened = {one.producer_id: one for one in transactions.open}
        if kind is BatchKind.TRANSACTIONAL:
            if producer_id not in opened:
                opened[producer_id] = OpenTransaction(producer_id, producer_epoch, offset)
            continue
        ended = opened.pop(producer_id, None)
        if ended is not None and kind is BatchKind.ABORT:
            oldest = next(iter(opened.values()), None)
            stable = offset + 1 if oldest is None else oldest.first_offset
            aborted.append(AbortedTransaction(producer_id, ended.first_offset, offset, stable))
    if opened is None:
        return transactions
    return replace(transactions, open=tuple(opened.values()), aborted=(*transactions.aborted, *aborted))


def without_aborted_below(transactions: PartitionTransactions, offset: int) -> PartitionTransactions:
    """The same without the aborted ones that ended below the offset: a checkpoint has them."""
    if offset <= transactions.aborted_from or not (transactions.aborted or transactions.aborted_from):
        return transactions
    aborted = tuple(one for one in transactions.aborted if one.last_offset >= offset)
    return replace(transactions, aborted=aborted, aborted_from=offset)


def from_log_start(transactions: PartitionTransactions, log_start_offset: int) -> PartitionTransactions:
    """The same without the aborted ones that ended below the log start offset: nothing of them is left.

    Open ones stay, as in Kafka, even if all of their records are gone.
    """
    aborted = transactions.aborted
    kept = tuple(one for one in aborted if one.last_offset >= log_start_offset)
    aborted_from = 0 if transactions.aborted_from <= log_start_offset else transactions.aborted_from
    if len(kept) == len(aborted) and aborted_from == transactions.aborted_from:
        return transactions
    return replace(transactions, aborted=kept, aborted_from=aborted_from)


def encode_transactions(transactions: PartitionTransactions) -> bytes:
    """The stored bytes, at the end of a record."""
    return b"".join(
        (
            _COUNTS.pack(transactions.aborted_from, len(transactions.open), len(transactions.aborted)),
            *(_OPEN.pack(one.producer_id, one.producer_epoch, one.first_offset) for one in transactions.open),
            *(
                _ABORTED.pack(one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset)
                for one in transactions.aborted
            ),
        )
    )


def decode_transactions(name: str, data: bytes, position: int) -> tuple[PartitionTransactions, int]:
    """The transactions at `position`, and the position after them. Raises `CorruptDataError`."""
    try:
        aborted_from, open_count, aborted_count = _COUNTS.unpack_from(data, position)
        position += _COUNTS.size
        if open_count * _OPEN.size + aborted_count * _ABORTED.size > len(data) - position:
            raise CorruptDataError(
                name, f"{open_count} open and {aborted_count} aborted transactions in {len(data)} bytes"
            )
        opened = []
        for _ in range(open_count):
            opened.append(OpenTransaction(*_OPEN.unpack_from(data, position)))
            position += _OPEN.size
        aborted = []
        for _ in range(aborted_count):
            aborted.append(AbortedTransaction(*_ABORTED.unpack_from(data, position)))
            position += _ABORTED.size
    except error as problem:
        raise CorruptDataError(name, f"transactions at byte {position}: {problem}") from problem
    return PartitionTransactions(tuple(opened), tuple(aborted), aborted_from), position
