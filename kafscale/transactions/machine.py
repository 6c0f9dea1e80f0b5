"""The state machine of a transactional id: which event does what in which state, and which states may follow.

Theory of operation. A driver (`record_driver.py`) reads the record, calls `decide` with one event, and carries out
the decision: it stores a record under the condition that the one which was decided on is still there, and answers
then. If it is not, the driver decides again with the new one. So every event sees the record as if it were alone, and
nothing here waits, reads a clock or knows who coordinates. `DEAD` is the state of a transactional id without a
record. Kafka's PrepareEpochFence is not a state here: fencing an ongoing transaction is one step to PREPARE_ABORT.

`TABLE` is complete: docs/transactions.md has it, and the property test walks it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafscale.formats.transaction_record import TransactionRecord, TransactionState
from kafscale.transactions import contents, ending, epochs
from kafscale.transactions.decisions import Decision, Ignore
from kafscale.transactions.events import (
    Add,
    End,
    Event,
    Expire,
    InitProducer,
    MarkersGone,
    MarkersStored,
    TimePassed,
    Verify,
)

Action = Callable[[Any, Any], Decision]
"""Takes the record (None in DEAD) and the event."""

_EMPTY = TransactionState.EMPTY
_ONGOING = TransactionState.ONGOING
_PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
_PREPARE_ABORT = TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
_COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
_DEAD = TransactionState.DEAD


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the table. `to`: the states that the decision may lead to. `meaning`: for the docs."""

    action: Action
    to: tuple[TransactionState, ...]
    meaning: str


def ignore(record: TransactionRecord | None, event: Event) -> Decision:
    """The event has no effect in this state."""
    return Ignore()


_NOTHING = "no effect"
_UNKNOWN = "INVALID_PRODUCER_ID_MAPPING"
_WAIT = "CONCURRENT_TRANSACTIONS: ask again"
_BUMP = "the epoch is bumped, or a new producer id begins when the epochs are used up"
_BEGIN = "a transaction begins"
_NOT_IN_IT = "TRANSACTION_ABORTABLE: it is not in a transaction"
_EXPIRE = "the record is deleted when it was unused for long"
_REPEATED = "the same decision: CONCURRENT_TRANSACTIONS; the other: INVALID_TXN_STATE"

TABLE: Final[Mapping[tuple[TransactionState, type], Row]] = {
    (_DEAD, InitProducer): Row(epochs.create, (_EMPTY,), "a producer id is assigned"),
    (_DEAD, Add): Row(contents.refuse_unknown, (_DEAD,), _UNKNOWN),
    (_DEAD, Verify): Row(contents.refuse_unknown, (_DEAD,), _UNKNOWN),
    (_DEAD, End): Row(ending.refuse_unknown, (_DEAD,), _UNKNOWN),
    (_DEAD, TimePassed): Row(ignore, (_DEAD,), _NOTHING),
    (_DEAD, MarkersStored): Row(ignore, (_DEAD,), _NOTHING),
    (_DEAD, MarkersGone): Row(ignore, (_DEAD,), _NOTHING),
    (_DEAD, Expire): Row(ignore, (_DEAD,), _NOTHING),
    (_EMPTY, InitProducer): Row(epochs.bump, (_EMPTY,), _BUMP),
    (_EMPTY, Add): Row(contents.begin, (_EMPTY, _ONGOING), _BEGIN),
    (_EMPTY, Verify): Row(contents.verify, (_EMPTY,), _NOT_IN_IT),
    (_EMPTY, End): Row(
        ending.end_empty, (_EMPTY, _COMPLETE_ABORT), "INVALID_TXN_STATE; TV2's abort bumps the epoch"
    ),
    (_EMPTY, TimePassed): Row(ignore, (_EMPTY,), _NOTHING),
    (_EMPTY, MarkersStored): Row(ignore, (_EMPTY,), _NOTHING),
    (_EMPTY, MarkersGone): Row(ignore, (_EMPTY,), _NOTHING),
    (_EMPTY, Expire): Row(ending.expire, (_EMPTY, _DEAD), _EXPIRE),
    (_ONGOING, InitProducer): Row(
        epochs.fence,
        (_ONGOING, _PREPARE_ABORT),
        "the transaction is aborted, its producer fenced, CONCURRENT_TRANSACTIONS: ask again",
    ),
    (_ONGOING, Add): Row(contents.add, (_ONGOING,), "added"),
    (_ONGOING, Verify): Row(contents.verify, (_ONGOING,), "says whether all of it is in the transaction"),
    (_ONGOING, End): Row(ending.end, (_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT), "decided"),
    (_ONGOING, TimePassed): Row(
        epochs.time_out, (_ONGOING, _PREPARE_ABORT), "aborted, and its producer fenced, if its time is over"
    ),
    (_ONGOING, MarkersStored): Row(ignore, (_ONGOING,), _NOTHING),
    (_ONGOING, MarkersGone): Row(ignore, (_ONGOING,), _NOTHING),
    (_ONGOING, Expire): Row(ignore, (_ONGOING,), _NOTHING),
    (_PREPARE_COMMIT, InitProducer): Row(epochs.wait, (_PREPARE_COMMIT,), _WAIT),
    (_PREPARE_COMMIT, Add): Row(contents.refuse_ending, (_PREPARE_COMMIT,), _WAIT),
    (_PREPARE_COMMIT, Verify): Row(contents.refuse_ending, (_PREPARE_COMMIT,), _WAIT),
    (_PREPARE_COMMIT, End): Row(ending.end_again, (_PREPARE_COMMIT,), _REPEATED),
    (_PREPARE_COMMIT, TimePassed): Row(ignore, (_PREPARE_COMMIT,), _NOTHING),
    (_PREPARE_COMMIT, MarkersStored): Row(
        ending.markers_stored, (_PREPARE_COMMIT,), "noted: missing marker keys are dealt with"
    ),
    (_PREPARE_COMMIT, MarkersGone): Row(ending.complete, (_COMPLETE_COMMIT,), "complete"),
    (_PREPARE_COMMIT, Expire): Row(ignore, (_PREPARE_COMMIT,), _NOTHING),
    (_PREPARE_ABORT, InitProducer): Row(epochs.wait, (_PREPARE_ABORT,), _WAIT),
    (_PREPARE_ABORT, Add): Row(contents.refuse_ending, (_PREPARE_ABORT,), _WAIT),
    (_PREPARE_ABORT, Verify): Row(contents.refuse_ending, (_PREPARE_ABORT,), _WAIT),
    (_PREPARE_ABORT, End): Row(ending.end_again, (_PREPARE_ABORT,), _REPEATED),
    (_PREPARE_ABORT, TimePassed): Row(ignore, (_PREPARE_ABORT,), _NOTHING),
    (_PREPARE_ABORT, MarkersStored): Row(
        ending.markers_stored, (_PREPARE_ABORT,), "noted: missing marker keys are dealt with"
    ),
    (_PREPARE_ABORT, MarkersGone): Row(ending.complete, (_COMPLETE_ABORT,), "complete"),
    (_PREPARE_ABORT, Expire): Row(ignore, (_PREPARE_ABORT,), _NOTHING),
    (_COMPLETE_COMMIT, InitProducer): Row(epochs.bump, (_COMPLETE_COMMIT, _EMPTY), _BUMP),
    (_COMPLETE_COMMIT, Add): Row(contents.begin, (_COMPLETE_COMMIT, _ONGOING), _BEGIN),
    (_COMPLETE_COMMIT, Verify): Row(contents.verify, (_COMPLETE_COMMIT,), _NOT_IN_IT),
    (_COMPLETE_COMMIT, End): Row(
        ending.end_complete,
        (_COMPLETE_COMMIT, _COMPLETE_ABORT),
        "a repeated commit is confirmed; TV2's abort bumps the epoch; else INVALID_TXN_STATE",
    ),
    (_COMPLETE_COMMIT, TimePassed): Row(ignore, (_COMPLETE_COMMIT,), _NOTHING),
    (_COMPLETE_COMMIT, MarkersStored): Row(ignore, (_COMPLETE_COMMIT,), _NOTHING),
    (_COMPLETE_COMMIT, MarkersGone): Row(ignore, (_COMPLETE_COMMIT,), _NOTHING),
    (_COMPLETE_COMMIT, Expire): Row(ending.expire, (_COMPLETE_COMMIT, _DEAD), _EXPIRE),
    (_COMPLETE_ABORT, InitProducer): Row(epochs.bump, (_COMPLETE_ABORT, _EMPTY), _BUMP),
    (_COMPLETE_ABORT, Add): Row(contents.begin, (_COMPLETE_ABORT, _ONGOING), _BEGIN),
    (_COMPLETE_ABORT, Verify): Row(contents.verify, (_COMPLETE_ABORT,), _NOT_IN_IT),
    (_COMPLETE_ABORT, End): Row(
        ending.end_complete,
        (_COMPLETE_ABORT,),
        "a repeated abort is confirmed; TV2's next abort bumps the epoch; else INVALID_TXN_STATE",
    ),
    (_COMPLETE_ABORT, TimePassed): Row(ignore, (_COMPLETE_ABORT,), _NOTHING),
    (_COMPLETE_ABORT, MarkersStored): Row(ignore, (_COMPLETE_ABORT,), _NOTHING),
    (_COMPLETE_ABORT, MarkersGone): Row(ignore, (_COMPLETE_ABORT,), _NOTHING),
    (_COMPLETE_ABORT, Expire): Row(ending.expire, (_COMPLETE_ABORT, _DEAD), _EXPIRE),
}


def state_of(record: TransactionRecord | None) -> TransactionState:
    """The state of a transactional id, DEAD without a record."""
    return _DEAD if record is None else record.state


def decide(record: TransactionRecord | None, event: Event) -> Decision:
    """The decision on the event. Every state that a record can have has a row for every event."""
    return TABLE[state_of(record), type(event)].action(record, event)
