"""The promises, checked in every state with what no broker knows: which transaction everything belongs to."""

from functools import cache

from kafscale.formats.partition_transactions import NO_TRANSACTIONS, after_events
from kafscale.transactions.markers import PREPARING
from tests.sim.transactions.clients import is_stored
from tests.sim.transactions.coordinating import IDLE
from tests.sim.transactions.states import GROUP, Batch, Log, Scope, State, events


class ViolationError(Exception):
    """A promise is broken."""


def check(state: State, scope: Scope) -> None:
    """Raises `ViolationError`."""
    outcomes: dict[int, bool] = dict.fromkeys(state.answered, True)
    for transaction in state.group.visible:
        _note(outcomes, transaction, True, "the group")
    for index, partition in enumerate(state.partitions):
        left = _ends(partition.log, outcomes, str(index))
        _check_open(state, left, f"partition {index}")
        _check_readers(partition.log)
    pending = state.group.pending
    if pending is not None:
        _check_open(state, {pending.transaction}, "the group")
    for transaction in state.answered:
        for place in scope.places:
            is_there = transaction in state.group.visible if place == GROUP else False
            if not is_there and not is_stored(state, place, transaction):
                raise ViolationError(f"{transaction} was committed, and {place} has nothing of it")


def _note(outcomes: dict[int, bool], transaction: int, is_commit: bool, where: str) -> None:
    if outcomes.setdefault(transaction, is_commit) != is_commit:
        raise ViolationError(
            f"{transaction} is {'committed' if is_commit else 'aborted'} in {where}, not elsewhere"
        )


def _ends(log: Log, outcomes: dict[int, bool], where: str) -> set[int]:
    """Returns the transactions that the log leaves open; each marker ends its own."""
    opened: set[int] = set()
    for one in log:
        if isinstance(one, Batch):
            opened.add(one.transaction)
            continue
        for transaction in opened:
            if transaction != one.transaction:
                raise ViolationError(f"the marker of {one.transaction} ends {transaction} in {where}")
            _note(outcomes, transaction, one.is_commit, where)
        opened = set()
    return opened


def _check_open(state: State, left: set[int], where: str) -> None:
    """Open batches belong to the transaction that the record has."""
    record = state.record
    for transaction in left:
        if record.value.state in IDLE:
            raise ViolationError(
                f"{where}: {transaction} is open, and the record is {record.value.state.name}"
            )
        if transaction != record.transaction:
            raise ViolationError(f"{where}: {transaction} is open, the record has {record.transaction}")
        if (
            record.value.state in PREPARING
            and transaction in state.answered
            and record.value.state != PREPARING[0]
        ):
            raise ViolationError(f"{transaction} was committed, and is aborted")


@cache
def _check_readers(log: Log) -> None:
    """A read_committed reader gets the batches that their marker commits, none before it is there."""
    found = after_events(NO_TRANSACTIONS, events(log))
    stable = found.last_stable_offset(0, len(log))
    shown = [
        offset
        for offset, one in enumerate(log[:stable])
        if isinstance(one, Batch)
        and not any(aborted.first_offset <= offset <= aborted.last_offset for aborted in found.aborted)
    ]
    true, opened = [], []
    for offset, one in enumerate(log):
        if isinstance(one, Batch):
            opened.append(offset)
        else:
            true += opened if one.is_commit else []
            opened = []
    if shown != true:
        raise ViolationError(f"readers see {shown}, committed are {true} of {log}")
