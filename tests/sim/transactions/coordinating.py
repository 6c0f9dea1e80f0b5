"""The steps of the transaction's coordinator, and of any broker that takes itself for it."""

from collections.abc import Iterator

from kafscale.formats.transaction_record import TransactionState
from tests.sim.transactions.mistakes import Mistake
from tests.sim.transactions.states import (
    Add,
    Client,
    End,
    Marker,
    Record,
    Scope,
    State,
    marker_at,
    replaced,
    with_marker,
)

Step = tuple[str, State]

S = TransactionState
PREPARED = (S.PREPARE_COMMIT, S.PREPARE_ABORT)
COMPLETE = (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
IDLE = (S.EMPTY, *COMPLETE)


# --- what a record becomes


def added(record: Record, places: tuple[int, ...], transaction: int, version: int, epoch: int) -> Record | None:
    """The record with the places in its transaction, which begins with them; None: it is refused."""
    if epoch != record.epoch or record.state in PREPARED:
        return None
    before = record.places if record.state is S.ONGOING else ()
    return record._replace(
        revision=record.revision + 1,
        state=S.ONGOING,
        places=tuple(sorted({*before, *places})),
        version=version,
        transaction=max(record.transaction, transaction),
    )


def decided(record: Record, is_commit: bool, bumps: bool) -> Record:
    """The record of the decided transaction."""
    return record._replace(
        revision=record.revision + 1,
        state=S.PREPARE_COMMIT if is_commit else S.PREPARE_ABORT,
        epoch=record.epoch + bumps,
        are_stored=True,
    )


def stored(state: State, record: Record, scope: Scope) -> State:
    """The decision, with a marker key for each place, or without where these come in pieces."""
    state = state._replace(record=record, put=frozenset())
    if scope.in_pieces:
        return state._replace(record=record._replace(are_stored=False))
    for place in record.places:
        state = with_marker(state, place, marker_of(record, 0))
    return state


def marker_of(record: Record, reloads: int) -> Marker:
    """The marker of a decided transaction."""
    is_commit = record.state is S.PREPARE_COMMIT
    return Marker((record.revision, reloads), is_commit, record.epoch, record.transaction)


# --- steps


def steps(state: State, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    """The next steps of all coordinators."""
    record = state.record
    for request in state.flying:
        if isinstance(request, Add):
            after = added(record, scope.places, request.transaction, 1, request.epoch)
            if after is not None and after.places != record.places:
                yield f"{request} is stored", state._replace(record=after)
        elif isinstance(request, End):
            yield from _ends(state, request, scope, mistake)
    if record.state is S.ONGOING and state.timeouts < scope.timeouts:
        after = decided(record, False, mistake is not Mistake.NO_BUMP_AT_TIMEOUT)
        yield "the transaction's time is over", stored(state, after, scope)._replace(timeouts=state.timeouts + 1)
    if record.state in PREPARED:
        yield from _puts_markers(state, scope)
        yield from _completes(state, mistake)
    for index, client in enumerate(state.clients):
        if client.epoch is None or client.must_init:
            yield from _initializes(state, index, client, scope, mistake)
    if mistake is Mistake.DECISION_NOT_COMPARED and state.cached != record:
        yield "a coordinator reads the record", state._replace(cached=record)


def _ends(state: State, request: End, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    record = state.record
    bumps = request.version == 2 and mistake is not Mistake.NO_BUMP_AT_END
    if mistake is Mistake.MARKERS_BEFORE_THE_DECISION and record.state is S.ONGOING:
        if request.epoch == record.epoch and not any(marker_at(state, place) for place in record.places):
            early = state
            for place in record.places:
                early = with_marker(early, place, marker_of(decided(record, request.is_commit, bumps), 0))
            yield f"the markers of {request} are put", early
    if mistake is Mistake.DECISION_NOT_COMPARED and state.cached is not None:
        known = state.cached
        if known.state is S.ONGOING and known.epoch == request.epoch and known.revision < record.revision:
            after = decided(known, request.is_commit, bumps)._replace(revision=record.revision + 1)
            yield from _answers(stored(state, after, scope), request, f"{request} is stored without a compare")
    same = request.epoch == record.epoch or mistake is Mistake.END_WITHOUT_EPOCH
    if record.state is S.ONGOING and same:
        after = decided(record, request.is_commit, bumps)
        yield from _answers(stored(state, after, scope), request, f"{request} is stored")
    elif record.state in IDLE and same and request.version == 2 and not request.is_commit:
        # Nothing was written: the epoch is bumped all the same.
        after = decided(record, False, bumps)._replace(places=(), transaction=request.transaction)
        yield from _answers(stored(state, after, scope), request, f"{request} is stored")
    elif _is_repeated(record, request):
        yield from _answers(state, request, f"{request} is answered again")


def _is_repeated(record: Record, request: End) -> bool:
    """True if the request was the one that decided."""
    same = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if request.is_commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
    return record.state in same and record.epoch == request.epoch + (request.version == 2)


def _answers(state: State, request: End, what: str) -> Iterator[Step]:
    """The answer arrives, or is lost."""
    yield f"{what}, the answer is lost", state
    for index, client in enumerate(state.clients):
        if client.ending != request:
            continue
        flying = state.flying
        if request.version == 1:
            # Its late EndTxn may end a later transaction: the known hazard of the old protocol (KAFKA-17754).
            flying -= {request}
        epoch = state.record.epoch if request.version == 2 else request.epoch
        sequences = client.sequences if epoch == request.epoch else (0,) * len(client.sequences)
        after = client._replace(
            epoch=epoch, made=client.made + 1, transaction=None, ending=None, sequences=sequences
        )
        answered = state.answered | {request.transaction} if request.is_commit else state.answered
        clients = replaced(state.clients, index, after)
        yield f"{what} and answered", state._replace(clients=clients, flying=flying, answered=answered)


def _puts_markers(state: State, scope: Scope) -> Iterator[Step]:
    """Where there are too many keys for one write: one by one, again after a reload, then the record."""
    record = state.record
    if record.are_stored:
        return
    if state.put and state.reloads < scope.reloads:
        yield "another coordinator loads the record", state._replace(put=frozenset(), reloads=state.reloads + 1)
    for place in record.places:
        if place not in state.put:
            put = with_marker(state, place, marker_of(record, state.reloads))
            yield f"the marker key of {place} is put", put._replace(put=state.put | {place})
    if state.put == frozenset(record.places):
        # Its revision is not compared by what follows: that of the decision goes on to stand for it.
        yield "all marker keys are put", state._replace(record=record._replace(are_stored=True), put=frozenset())


def _completes(state: State, mistake: Mistake | None) -> Iterator[Step]:
    record = state.record
    waits = any(marker_at(state, place) is not None for place in record.places)
    if waits and mistake is not Mistake.COMPLETE_EARLY:
        return
    if not record.are_stored and mistake is not Mistake.COMPLETE_UNSTORED:
        return
    complete = S.COMPLETE_COMMIT if record.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT
    after = record._replace(revision=record.revision + 1, state=complete, places=(), are_stored=False)
    yield "the transaction is complete", state._replace(record=after, put=frozenset())


def _initializes(
    state: State, index: int, client: Client, scope: Scope, mistake: Mistake | None
) -> Iterator[Step]:
    """InitProducerId: it aborts what is open under the next epoch, and the one after that is the client's."""
    record = state.record
    if client.must_init and client.epoch != record.epoch:
        return  # Fenced.
    if record.state is S.ONGOING:
        bumps = mistake is not Mistake.NO_BUMP_AT_INIT
        after = decided(record, False, bumps)
        fenced = stored(state, after, scope)
        if client.must_init:
            fenced = fenced._replace(
                clients=replaced(state.clients, index, client._replace(epoch=after.epoch))
            )
        yield f"client {index} fences the open transaction", fenced
    elif record.state in IDLE:
        epoch = record.epoch + (mistake is not Mistake.NO_BUMP_AT_INIT)
        begun = Client(epoch, client.made, None, None, (0,) * len(client.sequences), False)
        after = record._replace(revision=record.revision + 1, state=S.EMPTY, epoch=epoch)
        yield (
            f"client {index} has epoch {epoch}",
            state._replace(record=after, clients=replaced(state.clients, index, begun)),
        )
