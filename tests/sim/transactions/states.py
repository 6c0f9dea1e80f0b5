"""A state of the model: one transactional id, its clients, partitions with their leaders, and a group.

A write that compares the revision which it was computed from is one step: later it fails, and earlier it would have
been the same. A view of the store that lags is one that is not refreshed. `transaction` is what no broker knows:
which of the clients' transactions something belongs to.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kafscale.formats.partition_transactions import BatchKind, TransactionEvent
from kafscale.formats.transaction_record import TransactionRecord
from kafscale.transactions.epochs import LAST_USABLE_EPOCH
from kafscale.transactions.events import ProducerIdAndEpoch

FIRST_PRODUCER_ID = 7
GROUP = -1
"""In the place of a partition's index."""


class Record(NamedTuple):
    """The record of the transactional id as it is stored, and the transaction that is, or was last, in it."""

    revision: int
    value: TransactionRecord
    transaction: int

    @property
    def places(self) -> tuple[int, ...]:
        """All in the transaction."""
        groups = (GROUP,) if self.value.groups else ()
        return (*groups, *(index for _, index in self.value.partitions()))

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The current producer."""
        return ProducerIdAndEpoch(self.value.producer_id, self.value.producer_epoch)


class Marker(NamedTuple):
    """A marker key. `revision` is unique among those of the key; `claims`: the partition's, when it was put."""

    revision: tuple[int, int]
    is_commit: bool
    producer: ProducerIdAndEpoch
    claims: int
    transaction: int


class Batch(NamedTuple):
    """A batch of a transaction in a log, or offsets of one."""

    producer: ProducerIdAndEpoch
    sequence: int
    transaction: int


class Ended(NamedTuple):
    """A marker in a log."""

    is_commit: bool
    producer: ProducerIdAndEpoch
    transaction: int


Log = tuple[Batch | Ended, ...]


class Produce(NamedTuple):
    """A request that may arrive at any time, and more than once. With GROUP it is TxnOffsetCommit."""

    place: int
    batch: Batch
    version: int


class Add(NamedTuple):
    """AddPartitionsToTxn and AddOffsetsToTxn of the old protocol, for all places at once."""

    producer: ProducerIdAndEpoch
    transaction: int


class End(NamedTuple):
    """EndTxn. `coordinator`: the one that it was sent to."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    transaction: int
    version: int
    coordinator: int


Request = Produce | Add | End


class Leader(NamedTuple):
    """The knowledge of a leader. `log`: what it appended; `view`: the marker key as its watch showed it last.

    `confirmed`: the revision of a key that was read back. `deleting`: a key to delete, until the outcome is known.
    `asked`: a batch whose transaction was verified, before it is appended. `read`: the record as the leader read it
    (for a mistake).
    """

    log: Log
    view: Marker | None = None
    confirmed: tuple[int, int] | None = None
    deleting: Marker | None = None
    asked: Batch | None = None
    read: Record | None = None


class Partition(NamedTuple):
    """`log`: what is committed. `old`: the leader before, which does not know that it was replaced."""

    log: Log
    marker: Marker | None
    leader: Leader
    old: Leader | None
    claims: int
    is_fenced: bool  # the leader's journal has ended, and it still has the leader key


class Coordinator(NamedTuple):
    """The knowledge of a group's coordinator, as a leader's. `pending`: the offsets that it believes are pending."""

    pending: Batch | None
    view: Marker | None = None
    asked: Batch | None = None
    has_deleted: Marker | None = None  # for a mistake


class Group(NamedTuple):
    """`pending` and `visible`: as they are in the store."""

    pending: Batch | None
    visible: frozenset[int]
    marker: Marker | None
    coordinator: Coordinator
    old: Coordinator | None
    claims: int


class Client(NamedTuple):
    """An instance of the producer. `producer` is None before its InitProducerId.

    `transaction`: the open one; `ending`: its EndTxn, whose answer is awaited.
    """

    producer: ProducerIdAndEpoch | None
    made: int
    transaction: int | None
    ending: End | None
    sequences: tuple[int, ...]
    must_init: bool
    is_adding: bool = False


class State(NamedTuple):
    """`answered`: transactions whose commit was answered. `put`: marker keys put by the coordinator as it lives.

    `coordinator`: how often it was replaced.
    """

    record: Record
    partitions: tuple[Partition, ...]
    group: Group
    clients: tuple[Client, ...]
    flying: frozenset[Request]
    answered: frozenset[int]
    timeouts: int
    reloads: int
    put: frozenset[int]
    cached: Record | None  # for a mistake
    coordinator: int = 0


class Scope(NamedTuple):
    """How much there is. `versions` and `transactions`: of each client. `epochs_left`: before they are used up."""

    versions: tuple[int, ...] = (2,)
    transactions: tuple[int, ...] = (2,)
    partitions: int = 1
    group: bool = False
    claims: int = 1
    timeouts: int = 1
    aborts: bool = True
    in_pieces: bool = False
    reloads: int = 0
    epochs_left: int | None = None
    coordinators: int = 0  # replacements, as far as requests of the old protocol are concerned
    claims_all: bool = False  # leaders of all partitions are replaced, not those of the first alone

    @property
    def places(self) -> tuple[int, ...]:
        """All that each transaction writes to."""
        return (*((GROUP,) if self.group else ()), *range(self.partitions))


def replaced(items: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """The tuple with another item."""
    return (*items[:index], value, *items[index + 1 :])


def with_partition(state: State, index: int, **changes: Any) -> State:
    """The state with a changed partition."""
    changed = state.partitions[index]._replace(**changes)
    return state._replace(partitions=replaced(state.partitions, index, changed))


def marker_at(state: State, place: int) -> Marker | None:
    """The marker key of a place."""
    return state.group.marker if place == GROUP else state.partitions[place].marker


def with_marker(state: State, place: int, marker: Marker | None) -> State:
    """The state with another marker key."""
    if place == GROUP:
        return state._replace(group=state.group._replace(marker=marker))
    if marker is not None:
        marker = marker._replace(claims=state.partitions[place].claims)
    return with_partition(state, place, marker=marker)


def events(log: Log) -> Iterator[TransactionEvent]:
    """The log as its readers get it."""
    for offset, one in enumerate(log):
        kind = BatchKind.TRANSACTIONAL
        if isinstance(one, Ended):
            kind = BatchKind.COMMIT if one.is_commit else BatchKind.ABORT
        yield TransactionEvent(kind, *one.producer, offset)


def first_state(scope: Scope) -> State:
    """The first client has its epoch, nothing is written."""
    epoch = 0 if scope.epochs_left is None else LAST_USABLE_EPOCH - scope.epochs_left
    producer = ProducerIdAndEpoch(FIRST_PRODUCER_ID, epoch)
    value = TransactionRecord(
        producer_id=FIRST_PRODUCER_ID, producer_epoch=epoch, timeout_ms=0, updated_ms=0, started_ms=0
    )
    partition = Partition((), None, Leader(()), None, 0, False)
    first = Client(producer, 0, None, None, (0,) * scope.partitions, False)
    return State(
        record=Record(0, value, -1),
        partitions=(partition,) * scope.partitions,
        group=Group(None, frozenset(), None, Coordinator(None), None, 0),
        clients=(first, *(first._replace(producer=None) for _ in scope.versions[1:])),
        flying=frozenset(),
        answered=frozenset(),
        timeouts=0,
        reloads=0,
        put=frozenset(),
        cached=None,
    )
